"""The fields of JSON columns that views read, which Spark parses once for all views of a query."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, functions, types

from starling_spark.jobs.views.view import NAME, View


class Parsed(NamedTuple):
    """`events`: with the parsed columns; `of_view`: by name of the view, its parsed columns by name of the JSON column."""

    events: DataFrame
    of_view: Mapping[str, Mapping[str, Column]]


class _Parser:
    """The fields of one JSON column, and the names of the events that have them, none for all."""

    def __init__(self, column: str) -> None:
        self.column = column
        self._fields: dict[str, types.StructField] = {}
        self._names: set[str] | None = set()

    def takes(self, fields: types.StructType, view: View) -> bool:
        """Add the fields of a view; return False if it has one of another type under the same name."""
        if any(self._fields.get(one.name, one) != one for one in fields):
            return False
        self._fields |= {one.name: one for one in fields}
        if self._names is not None:
            self._names = self._names.union(view.names) if view.names else None
        return True

    def parsed(self) -> Column:
        found = functions.from_json(self.column, types.StructType(list(self._fields.values())))
        # Other events of the query are those of views that do not read this column.
        return found if self._names is None else functions.when(functions.col(NAME).isin(*sorted(self._names)), found)


def parsed(events: DataFrame, views: Iterable[View]) -> Parsed:
    """Parse the JSON columns of events, each once unless views have fields of different types under one name.

    Raises: ValueError if the fields of a view are not those of a struct; ParseException if they are not DDL.
    """
    parsers: dict[str, _Parser] = {}
    of_view: dict[str, Mapping[str, Column]] = {}
    for view in views:
        own: dict[str, Column] = {}
        for column, text in view.json.items():
            fields, number = types.DataType.fromDDL(text), 0
            if not isinstance(fields, types.StructType):
                raise ValueError(  # noqa: TRY004 - a wrong text
                    f"the fields of {column} that the view {view.name} reads are not those of a struct: {text}"
                )
            while not parsers.setdefault(f"{column}_{number}", _Parser(column)).takes(fields, view):
                number += 1
            own[column] = functions.col(f"{column}_{number}")
        of_view[view.name] = own
    return Parsed(events.withColumns({name: one.parsed() for name, one in parsers.items()}), of_view)
