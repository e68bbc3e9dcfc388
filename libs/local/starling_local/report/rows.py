"""Pure core: rows of the audience report as the API gives them -> what the page shows of each segment."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Day:
    """One day of a segment; `size` is that at its end."""

    day: str
    size: int
    entries: int
    exits: int


@dataclass(frozen=True, slots=True)
class Audience:
    """The whole report. `days`: by segment, in order; `kept`: (segment, days later) -> (entered, still in), all days together;
    `cohorts`: the same by (segment, month, days later); `shared`: (segment, other) -> people in both.
    """

    as_of: str
    timezone: str
    records_missing: int
    records_unreadable: int
    days: Mapping[str, Sequence[Day]]
    kept: Mapping[tuple[str, int], tuple[int, int]]
    cohorts: Mapping[tuple[str, str, int], tuple[int, int]]
    shared: Mapping[tuple[str, str], int]

    @property
    def later(self) -> Sequence[int]:
        """After how many days was asked."""
        return sorted({later for _, later in self.kept})


def audience(head: Mapping[str, Any], rows: Mapping[str, Iterable[Mapping[str, Any]]]) -> Audience:
    """`head`: what every page says beside its rows; `rows`: `days`, `retention`, `overlap` -> the rows."""
    days: dict[str, list[Day]] = {}
    for row in rows["days"]:
        days.setdefault(row["segment"], []).append(Day(row["day"], row["size"], row["entries"], row["exits"]))
    kept: dict[tuple[str, int], tuple[int, int]] = {}
    cohorts: dict[tuple[str, str, int], tuple[int, int]] = {}
    for row in rows["retention"]:
        counts = (row["entered"], row["still"])
        _add(kept, (row["segment"], row["days_later"]), counts)
        _add(cohorts, (row["segment"], row["day"][:7], row["days_later"]), counts)
    shared = {(row["segment"], row["other_key"]): row["users"] for row in rows["overlap"]}
    counts = (head["records_missing"], head["records_unreadable"])
    return Audience(head["as_of"], head["timezone"], *counts, days, kept, cohorts, shared)


def _add(sums: dict[Any, tuple[int, int]], key: Any, counts: tuple[int, int]) -> None:
    entered, still = sums.get(key, (0, 0))
    sums[key] = (entered + counts[0], still + counts[1])
