"""Pure core: the plan of a reprocessing: its inputs, its progress and its outcomes."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from starling_common.time.instants import format_instant
from starling_spark.jobs.reprocess.fold.folding import OUTCOMES
from starling_spark.text import aligned

Catalog = Literal["then", "now"]
"""`then`: products as of the item's receipt, if an event of the item exists; otherwise, and with `now`, the current products."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One reprocessing. The same plan gives the same tables, so an unfinished run can be continued.

    `rules`: a hash of the stages; `snapshots`: table of the lake -> snapshot id; `cut`: partition -> the last instant of receipt,
    epoch microseconds; `done`: partition -> outcome -> number of rows; `begun_at_ms`: wall clock.
    """

    name: str
    rules: str
    catalog: Catalog
    begun_at_ms: int
    snapshots: Mapping[str, int]
    cut: Mapping[int, int]
    done: Mapping[int, Mapping[str, int]] = {}

    @property
    def is_done(self) -> bool:
        """Return whether all partitions are done."""
        return self.done.keys() >= self.cut.keys()

    def left(self) -> list[int]:
        """Return the partitions that are not done."""
        return sorted(self.cut.keys() - self.done.keys())

    def with_done(self, counts: Mapping[int, Mapping[str, int]]) -> "Plan":
        """Return the plan with these partitions done."""
        return msgspec.structs.replace(self, done={**self.done, **counts})

    def totals(self) -> dict[str, int]:
        """Return the number of rows by outcome."""
        total: Counter[str] = Counter()
        for counts in self.done.values():
            total.update(counts)
        return {outcome: total[outcome] for outcome in OUTCOMES}


def rules_hash(package: Path) -> str:
    """Return a hash of a package's sources."""
    found = hashlib.sha256()
    for path in sorted(package.glob("*.py")):
        found.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def cut_of(first_missing_ms: Mapping[int, int | None], latest_ms: int) -> dict[int, int]:
    """Return by partition the instant of receipt up to which all records are available, epoch microseconds.

    `first_missing_ms`: receipt of the first missing record, None: none is missing; `latest_ms`: upper bound.
    """
    return {
        partition: min(latest_ms * 1000, latest_ms * 1000 if missing is None else missing * 1000 - 1)
        for partition, missing in first_missing_ms.items()
    }


def groups(partitions: Sequence[int], size: int) -> list[list[int]]:
    """Return the partitions in groups of `size`."""
    return [list(partitions[start : start + size]) for start in range(0, len(partitions), size)]


def table(plans: Iterable[Plan], in_force: str | None) -> str:
    """Return a text table with a line for each plan."""
    heads = ("name", "state", "partitions", *OUTCOMES, "received up to")
    rows = [heads] + [
        (
            one.name,
            "in force" if one.name == in_force else "done" if one.is_done else "unfinished",
            f"{len(one.done)}/{len(one.cut)}",
            *(str(count) for count in one.totals().values()),
            format_instant(max(one.cut.values(), default=0) // 1000),
        )
        for one in plans
    ]
    return aligned(rows)
