"""Pure core: rows of the audience report from the API -> figures of each segment for the page."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Day:
    """One day of a segment; `size` is the number of members at its end."""

    day: str
    size: int
    entries: int
    exits: int


@dataclass(frozen=True, slots=True)
class Audience:
    """The whole report.

    Shape: `days`: segment -> days in order; `retention`: (segment, days later) -> (entered, still in), summed over all days;
           `cohorts`: the same by (segment, month of entry, days later); `overlap`: (segment, other) -> users in both.
    """

    as_of: str
    timezone: str
    records_missing: int
    records_unreadable: int
    days: Mapping[str, Sequence[Day]]
    retention: Mapping[tuple[str, int], tuple[int, int]]
    cohorts: Mapping[tuple[str, str, int], tuple[int, int]]
    overlap: Mapping[tuple[str, str], int]

    @property
    def days_later(self) -> Sequence[int]:
        """Return the numbers of days for which retention was computed."""
        return sorted({days_later for _, days_later in self.retention})


def audience(head: Mapping[str, Any], rows: Mapping[str, Iterable[Mapping[str, Any]]]) -> Audience:
    """Return the report. `head`: the fields of a page without its rows; `rows`: `days`, `retention`, `overlap` -> rows."""
    days: dict[str, list[Day]] = {}
    for row in rows["days"]:
        days.setdefault(row["segment"], []).append(Day(row["day"], row["size"], row["entries"], row["exits"]))
    retention: dict[tuple[str, int], tuple[int, int]] = {}
    cohorts: dict[tuple[str, str, int], tuple[int, int]] = {}
    for row in rows["retention"]:
        counts = (row["entered"], row["still"])
        _add(retention, (row["segment"], row["days_later"]), counts)
        _add(cohorts, (row["segment"], row["day"][:7], row["days_later"]), counts)
    overlap = {(row["segment"], row["other_key"]): row["users"] for row in rows["overlap"]}
    counts = (head["records_missing"], head["records_unreadable"])
    return Audience(head["as_of"], head["timezone"], *counts, days, retention, cohorts, overlap)


def _add(sums: dict[Any, tuple[int, int]], key: Any, counts: tuple[int, int]) -> None:
    entered, still = sums.get(key, (0, 0))
    sums[key] = (entered + counts[0], still + counts[1])
