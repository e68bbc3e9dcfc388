"""Pure core: views in SQL that a run computes by the day: their field `incremental`, and what its statement must have.

The API checks a definition with it, and the Spark job `sql_traits` reads the stored field with it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from sqlglot import exp

from starling_rules.sql.event_types import is_table
from starling_rules.sql.statement import AS_OF, Place, SqlError, parsed, tables_read
from starling_rules.sql.tables import EVENTS
from starling_segments.language.durations import duration_ms

FIELD: Final = "incremental"
COLUMN: Final = "column"
WATERMARK: Final = "watermark"
DEFAULT_WATERMARK: Final = "7d"
_TIME: Final = "event_time"


class Incremental(NamedTuple):
    """How a view is computed by the day. `column`: of its rows, the day of their events; `watermark_ms`: days that are older wait.

    `full`: this run computes all days.
    """

    column: str
    watermark_ms: int
    full: bool = False


def incremental_of(text: str | None) -> Incremental | None:
    """Return the stored field, JSON as `stored` wrote it; None: each run computes all rows."""
    if text is None:
        return None
    field: Mapping[str, Any] = msgspec.json.decode(text)
    return Incremental(field[COLUMN], duration_ms(field[WATERMARK]) or 0, bool(field.get("full")))


def stored(field: Mapping[str, Any] | None, *, full: bool = False) -> str | None:
    """Return the field of a valid definition for one run, as JSON. `full`: the run computes all days."""
    if not field:
        return None
    watermark = field.get(WATERMARK) or DEFAULT_WATERMARK
    return msgspec.json.encode({COLUMN: field[COLUMN], WATERMARK: watermark, "full": full}).decode()


def day_errors(text: str, column: str) -> list[SqlError]:
    """Return the errors of a valid statement whose rows belong to days. `column`: the name of that of the day, in lower case."""
    tree = parsed(text)
    if tree is None:
        return []
    return [*_source_errors(text, tree), *_parameter_errors(text, tree), *_column_errors(text, tree, column)]


def _source_errors(text: str, tree: exp.Query) -> Iterator[SqlError]:
    """Yield the error of a statement that reads no events."""
    if not any(table == EVENTS or is_table(table) for table in tables_read(text)):
        reason = "it reads no events, so its rows belong to no days"
        yield SqlError("not_incremental", *Place.of(text, tree), reason, "FROM events, or no `incremental`")


def _parameter_errors(text: str, tree: exp.Query) -> Iterator[SqlError]:
    """Yield the errors of `:as_of`: rows of former runs stay, and would have the time of those."""
    for node in tree.find_all(exp.Placeholder):
        if node.name == AS_OF:
            reason, cure = ":as_of is the time of one run, and these rows are of several runs", "a fixed time, or no `incremental`"
            yield SqlError("bad_parameter", *Place.of(text, node.parent or node), reason, cure)


def _column_errors(text: str, tree: exp.Query, column: str) -> Iterator[SqlError]:
    """Yield the errors of the column of the day: a part of the statement computes it, and others may pass it on."""
    named = [one for one in tree.find_all(exp.Alias) if one.alias.lower() == column]
    computed = [one for one in named if not _is_column(one.this, column)]
    cure = f"to_date(event_time) AS {column}"
    if not computed:
        yield SqlError("bad_result", *Place.of(text, tree), f"no part of it computes {column}", cure)
    for one in computed:
        if not _is_day(one.this):
            yield SqlError("bad_result", *Place.of(text, one), f"{column} is not the day of an event", cure)


def _is_day(value: exp.Expr) -> bool:
    if not isinstance(value, exp.TsOrDsToDate | exp.Cast) or not _is_column(value.this, _TIME):
        return False
    return value.args.get("format") is None and (isinstance(value, exp.TsOrDsToDate) or value.to.is_type(exp.DataType.Type.DATE))


def _is_column(value: exp.Expr, name: str) -> bool:
    return isinstance(value, exp.Column) and value.name.lower() == name
