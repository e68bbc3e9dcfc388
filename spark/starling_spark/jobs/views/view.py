"""Pure core: the definition of a view."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import Column

HOUR_MS = 3_600_000
TIME, NAME = "event_time", "name"
"""Columns of the time and the name of an event."""


@dataclass(frozen=True, slots=True)
class View:
    """Sums of `measures` by workspace, `dimensions` and window of event time.

    `lines`: the lines of an event, an expression over the fields of `record`: an array of structs with the dimensions as text and
    the measures as decimals, which sum up to the same in any order. Windows are `window_hours` long and begin at midnight UTC.
    An increment of `version`, for any change, computes the view again beside the old one and then replaces it.
    `names`: of the events that count, () for all of them; `columns`: the fields that `lines` reads, None for all. What neither
    names is not decoded. `json`: by the name of a further column, of JSON text, the fields of it that `lines` reads, as DDL of
    Spark such as `sku STRING, price STRING`. `lines` is given a struct of them by that name; all views of a query share it. A
    field is null if it has a value of another type, or if the text is no object.
    """

    name: str
    version: int
    topic: str
    record: str
    window_hours: int
    dimensions: tuple[str, ...]
    measures: tuple[str, ...]
    lines: Callable[[Mapping[str, Column]], Column]
    names: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None
    json: Mapping[str, str] = field(default_factory=dict)

    @property
    def window_ms(self) -> int:
        """Return the length of a window in ms."""
        return self.window_hours * HOUR_MS
