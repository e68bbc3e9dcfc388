"""Pure core: what a reprocessing says about itself: of what it is made, how far it is, and what came of it."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from starling_common.instants import format_instant
from starling_spark.jobs.reprocess.folding import OUTCOMES
from starling_spark.text import aligned

Catalog = Literal["then", "now"]
"""`then`: what the catalog said when the item passed, where an event of it is known; else, and with `now`, what it says now."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One reprocessing. The same plan gives the same tables, so one that was killed goes on.

    `rules`: a hash of the stages; `snapshots`: table of the lake -> what is read of it; `cut`: partition -> up to which receipt,
    epoch microseconds; `done`: partition -> outcome -> so many rows; `begun_at_ms`: wall clock.
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
        """All partitions are."""
        return self.done.keys() >= self.cut.keys()

    def left(self) -> list[int]:
        """The partitions that are not done."""
        return sorted(self.cut.keys() - self.done.keys())

    def with_done(self, counts: Mapping[int, Mapping[str, int]]) -> "Plan":
        """These partitions are done as well."""
        return msgspec.structs.replace(self, done={**self.done, **counts})

    def totals(self) -> dict[str, int]:
        """Outcome -> so many rows."""
        total: Counter[str] = Counter()
        for counts in self.done.values():
            total.update(counts)
        return {outcome: total[outcome] for outcome in OUTCOMES}


def rules_hash(package: Path) -> str:
    """A hash of a package's sources: the same text, the same rules."""
    found = hashlib.sha256()
    for path in sorted(package.glob("*.py")):
        found.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def cut_of(first_missing_ms: Mapping[int, int | None], latest_ms: int) -> dict[int, int]:
    """Partition -> up to which receipt everything is at hand, epoch microseconds.

    `first_missing_ms`: when the first record was received that is not at hand, None: there is none; `latest_ms`: never beyond.
    """
    return {
        partition: min(latest_ms * 1000, latest_ms * 1000 if missing is None else missing * 1000 - 1)
        for partition, missing in first_missing_ms.items()
    }


def groups(partitions: Sequence[int], size: int) -> list[list[int]]:
    """The partitions in their order, so many at once."""
    return [list(partitions[start : start + size]) for start in range(0, len(partitions), size)]


def table(plans: Iterable[Plan], in_force: str | None) -> str:
    """For people: a line for each."""
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
