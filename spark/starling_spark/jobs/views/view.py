"""Pure core: the definition of a view."""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column

HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class View:
    """Sums of `measures` by workspace, `dimensions` and window of event time.

    `lines`: the lines of an event, an expression over the fields of `record`: an array of structs with the dimensions as text and
    the measures as decimals, which sum up to the same in any order. Windows are `window_hours` long and begin at midnight UTC.
    An increment of `version`, for any change, computes the view again beside the old one and then replaces it.
    `names`: of the events that count, () for all of them; `columns`: the fields that `lines` reads, None for all. What neither
    names is not decoded.
    """

    name: str
    version: int
    topic: str
    record: str
    window_hours: int
    dimensions: tuple[str, ...]
    measures: tuple[str, ...]
    lines: Callable[[], Column]
    names: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None

    @property
    def window_ms(self) -> int:
        """Return the length of a window in ms."""
        return self.window_hours * HOUR_MS
