"""Pure core: what the checks of a run need to know of its result, measured by Spark: DataFrame in, `Measured` out."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from pyspark.sql import Column, DataFrame, functions, types

from starling_rules.sql.checks import FRESHNESS, NOT_NULL, RANGE, UNIQUE, VOLUME, Check, Measured

_TIMES: Final = (types.DateType, types.TimestampType, types.TimestampNTZType)
_ALL: Final = "all_rows"


def misfit(columns: types.StructType, checks: Sequence[Check]) -> str | None:
    """Return the reason and the cure of the first check whose column is not in the result, or has another type; None: all fit."""
    kinds = {field.name.lower(): field.dataType for field in columns.fields}
    for number, check in enumerate(checks, 1):
        for name in check.columns:
            kind, at = kinds.get(name.lower()), f"check {number}, {check.title}"
            if kind is None:
                return f"{at}: the result has no column {name}: name one of {', '.join(kinds)}"
            if check.rule == RANGE and not isinstance(kind, types.NumericType):
                return f"{at}: the column is of the type {kind.simpleString()}: CAST it to a number"
            if check.rule == FRESHNESS and not isinstance(kind, _TIMES):
                return f"{at}: the column is of the type {kind.simpleString()}: CAST it to a DATE or a TIMESTAMP"
    return None


def measured(result: DataFrame, checks: Sequence[Check], rows: int, before: int | None) -> list[Measured]:
    """Return what each check needs, by one pass over the result and one more for each `unique`.

    `rows`, `before`: the rows of this run and of the last complete one, for `volume`. Dates are in the time zone of the session.
    """
    columns = [column for number, check in enumerate(checks) for column in _aggregates(f"c{number}", check)]
    found: dict[str, Any] = {}
    if any(check.rule != VOLUME for check in checks):
        found = result.agg(functions.count("*").alias(_ALL), *columns).collect()[0].asDict()
    return [_measured(result, check, f"c{number}", found, (rows, before)) for number, check in enumerate(checks)]


def _aggregates(prefix: str, check: Check) -> list[Column]:
    if check.rule not in {NOT_NULL, RANGE, FRESHNESS}:
        return []
    value = _column(check.columns[0])
    if check.rule == NOT_NULL:
        return [functions.count_if(value.isNull()).alias(f"{prefix}_violations")]
    if check.rule == FRESHNESS:
        return [functions.unix_millis(functions.max(value.cast("timestamp"))).alias(f"{prefix}_newest")]
    is_nan = functions.isnan(value.cast("double"))
    # NaN is greater than any number in Spark, so a lower bound alone would accept it.
    is_wrong = is_nan
    if check.least is not None:
        is_wrong |= value < functions.lit(check.least)
    if check.most is not None:
        is_wrong |= value > functions.lit(check.most)
    number = functions.when(~is_nan, value)
    return [
        functions.count_if(is_wrong).alias(f"{prefix}_violations"),
        functions.min(number).alias(f"{prefix}_least"),
        functions.max(number).alias(f"{prefix}_greatest"),
    ]


def _measured(result: DataFrame, check: Check, prefix: str, found: dict[str, Any], volume: tuple[int, int | None]) -> Measured:
    if check.rule == VOLUME:
        return Measured(volume[0], before=volume[1])
    rows = found[_ALL]
    if check.rule == UNIQUE:
        groups = result.groupBy(*map(_column, check.columns)).agg(functions.count("*").alias("size")).where("size > 1")
        sums = groups.agg(functions.sum("size").alias("violations"), functions.count("*").alias("repeated")).collect()[0]
        return Measured(rows, sums["violations"] or 0, sums["repeated"])
    return Measured(
        rows,
        found.get(f"{prefix}_violations", 0),
        least=_text(found.get(f"{prefix}_least")),
        greatest=_text(found.get(f"{prefix}_greatest")),
        newest_ms=found.get(f"{prefix}_newest"),
    )


def _column(name: str) -> Column:
    return functions.col(f"`{name}`")


def _text(number: float | Decimal | None) -> str | None:
    """Return a number without a fraction of zero."""
    if number is None:
        return None
    text = str(number)
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text.lower() else text
