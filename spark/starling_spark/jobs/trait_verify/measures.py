"""Measures of the language as aggregations of Spark: DataFrame in, DataFrame out.

A measure has one aggregation for each of several sets of matches, its *views*: at both ends of the time in which a published value
may have been computed, and those by which an approximate value is checked. Nothing of the accumulators of the language is used.
"""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession, functions, types

from starling_segments.language.tree import Measure, MeasureName
from starling_spark.jobs.trait_verify.filters import by_language, native
from starling_spark.jobs.trait_verify.trait import NotVerifiable
from starling_spark.jobs.trait_verify.variants import Value, is_native
from starling_spark.jobs.trait_verify.windows import recent, span, wider

LOW: Final = "low"
"""The matches up to the cut, in the window at the stream time of the cut."""
HIGH: Final = "high"
"""All matches, in the window at the latest stream time that the job `profiles` may have reached."""
WIDE: Final = "wide"
"""Those of `LOW`, and those that may leave the window late."""
RECENT: Final = "recent"
"""Those that decide whether the window is exact."""
MOVING: Final = "moving"
"""Those that came after the cut, or crossed the window's ends since then."""

EVENTS: Final = types.StructType(
    [
        types.StructField("partition", types.IntegerType()),
        types.StructField("offset", types.LongType()),
        types.StructField("user_id", types.StringType()),
        types.StructField("name", types.StringType()),
        types.StructField("time_ms", types.LongType()),
        *[types.StructField(name, types.StringType()) for name in ("properties", "context", "traits")],
        types.StructField("is_new", types.BooleanType()),
    ]
)
"""An event of the trait's workspace. `is_new`: it lies behind the cut."""

FACT: Final = "struct<side:int,view:string,value:string,amounts:array<double>,matches:bigint,keys:bigint,bytes:bigint>"
"""What is known of one side of a trait in one view. `value`: JSON; `amounts`: of `sum` and `avg` all, of `percentile` two bounds;
`keys`: different values; `bytes`: of the values.
"""

_FIELDS: Final = ("value", "amounts", "matches", "keys", "bytes")

_RANK_ERROR: Final = 0.02
"""Twice the documented error of a rank, which holds for 99 % of the percentiles."""
_MOST_EXACT: Final = 2**31
_SPREAD: Final = frozenset({"percentile", "most_frequent", "distinct", "first", "last"})
"""Measures that store values."""


class Times(NamedTuple):
    """The stream time of a partition at the cut, and the latest that the job `profiles` may have reached. Epoch ms."""

    low_ms: int
    high_ms: int


def facts(spark: SparkSession, events: DataFrame, sides: Sequence[Measure], document: str, times: Mapping[int, Times]) -> DataFrame:
    """Return (user_id, facts: list of `FACT`) of each user with matches.

    Shape: in: `EVENTS`; `times`: by partition. Raises: NotVerifiable.
    """
    found = [_facts_of(_matches(spark, events, side, sides, document, times), side, measure) for side, measure in enumerate(sides)]
    rows = found[0] if len(found) == 1 else found[0].unionByName(found[1])
    fact = functions.struct("side", "view", *_FIELDS).cast(FACT)
    return rows.groupBy("user_id").agg(functions.collect_list(fact).alias("facts"))


def check_native(measure: Measure) -> None:
    """Raise NotVerifiable if Spark has no equivalent of a measure."""
    if measure.path is not None and not is_native(measure.path):
        raise NotVerifiable(f"the property {measure.path!r} of the measure has no equivalent in Spark, such as a path with *")
    if measure.q is not None and Fraction(measure.q).denominator > _MOST_EXACT:
        raise NotVerifiable(f"the rank {measure.q} of the percentile has too many digits")


def _matches(
    spark: SparkSession, events: DataFrame, side: int, sides: Sequence[Measure], document: str, times: Mapping[int, Times]
) -> DataFrame:
    """Return the matches of one side in each view: user_id, view, time_ms, offset, and the columns of `_payload`."""
    measure = sides[side]
    check_native(measure)
    name = measure.event.name
    own = events if name == "*" else events.where(_is_named(name))
    json = own.withColumns(
        {one: functions.try_parse_json(text) for one, text in (("_properties", "properties"), ("_context", "context"))}
    )
    holds = native(measure.event.where, functions.col("_properties"), functions.col("_context"))
    if holds is None:
        test = functions.udf(by_language(document, side), types.BooleanType(), useArrow=False)
        holds = test("time_ms", "properties", "context", "traits")
    payload = _payload(measure)
    found = json.where(holds).select("partition", "offset", "user_id", "time_ms", "is_new", *payload)
    if "payload" in found.columns:
        found = found.where("payload IS NOT NULL")
    bounds = functions.broadcast(spark.createDataFrame(_bounds(measure, times), _BOUNDS))
    views = functions.array_compact(functions.array(*[functions.when(holds, view) for view, holds in _views().items()]))
    return found.join(bounds, "partition").withColumn("view", functions.explode(views))


_ENDS: Final = ("low_first", "low_end", "high_first", "high_end", "wide_first", "wide_end", "recent_first", "recent_end")
_BOUNDS: Final = types.StructType(
    [types.StructField("partition", types.IntegerType()), *[types.StructField(name, types.LongType()) for name in _ENDS]]
)


def _bounds(measure: Measure, times: Mapping[int, Times]) -> list[tuple[int, ...]]:
    window, is_much = measure.window, measure.name in _SPREAD
    return [
        (
            partition,
            *span(window, one.low_ms),
            *span(window, one.high_ms),
            *wider(window, one.low_ms, is_much=is_much),
            recent(window, one.low_ms).first,
            recent(window, one.high_ms).end,
        )
        for partition, one in times.items()
    ]


def _views() -> Mapping[str, Column]:
    time_ms = functions.col("time_ms")

    def within(view: str) -> Column:
        return (time_ms >= functions.col(f"{view}_first")) & (time_ms < functions.col(f"{view}_end"))

    is_old = ~functions.col("is_new")
    return {
        LOW: is_old & within(LOW),
        HIGH: within(HIGH),
        WIDE: is_old & within(WIDE),
        RECENT: within(RECENT),
        MOVING: ~is_old | (within(LOW) != within(HIGH)),
    }


def _is_named(name: str) -> Column:
    column = functions.col("name")
    return column.startswith(name[:-1]) if name.endswith("*") else column == name


def _payload(measure: Measure) -> list[Column]:
    """Return the columns that the measure reads: `payload`, and `json` where a value is kept."""
    if measure.zone is not None:
        moment = "TIMESTAMP_NTZ '1970-01-01 00:00:00' + make_dt_interval(0, 0, 0, CAST(time_ms AS DECIMAL(18, 3)) / 1000)"
        return [functions.expr(f"CAST(convert_timezone('UTC', '{measure.zone}', {moment}) AS DATE)").alias("payload")]
    if measure.path is None:
        return []
    value = Value(functions.col("_properties"), measure.path)
    if measure.name in {"sum", "avg", "min", "max", "percentile"}:
        number = value.number
        return [functions.when(functions.abs(number) <= 1e290, number).alias("payload")]
    if measure.name in {"distinct", "most_frequent"}:
        return [value.key.alias("payload"), value.json.alias("json")]
    return [value.json.alias("payload")]


def _facts_of(matches: DataFrame, side: int, measure: Measure) -> DataFrame:
    by, columns = ("user_id", "view"), _AGGREGATES[measure.name](measure)
    if measure.name == "most_frequent":
        last, json = functions.max(_place()).alias("last"), functions.max_by("json", _place()).alias("json")
        matches = matches.groupBy(*by, "payload").agg(functions.count("*").alias("n"), last, json)
    columns = {**dict.fromkeys(_FIELDS, functions.lit(None)), "matches": functions.count("*"), **columns}
    found = matches.groupBy(*by).agg(*[column.alias(name) for name, column in columns.items()])
    return found.withColumn("side", functions.lit(side))


def _text(column: Column) -> Mapping[str, Column]:
    return {"value": column.cast("string")}


def _all(_measure: Measure) -> Mapping[str, Column]:
    return {"amounts": functions.collect_list("payload")}


def _stored(value: Column) -> Mapping[str, Column]:
    return {"value": value, "bytes": functions.sum(functions.octet_length("payload"))}


def _distinct(_measure: Measure) -> Mapping[str, Column]:
    number = functions.count_distinct("payload")
    return {**_text(number), "keys": number}


def _most_frequent(_measure: Measure) -> Mapping[str, Column]:
    """Of values with the same number of matches, that whose last match is the last by time, then by arrival."""
    most = functions.max_by("json", functions.struct("n", "last"))
    size = functions.sum(functions.octet_length("json"))
    return {"value": most, "matches": functions.sum("n"), "keys": functions.count("*"), "bytes": size}


def _percentile(measure: Measure) -> Mapping[str, Column]:
    """Return `value`, at the nearest rank, and `amounts`: the lowest and the highest value that an estimate may have."""
    rank = Fraction(measure.q or "0")
    ordered, n = functions.array_sort(functions.collect_list("payload")), functions.count("payload")
    # In whole numbers, so that 0.07 times 100 is 7.
    nearest = functions.expr(f"(count(payload) * {rank.numerator}L + {rank.denominator - 1}L) div {rank.denominator}L")
    low = functions.floor(n * max(0.0, float(rank) - _RANK_ERROR))
    high = functions.ceil(n * min(1.0, float(rank) + _RANK_ERROR))

    def at(place: Column) -> Column:
        place = functions.least(functions.greatest(place, functions.lit(1)), n)
        return functions.element_at(ordered, place.cast("int"))

    return {"value": at(nearest).cast("string"), "amounts": functions.array(at(low), at(high))}


def _place() -> Column:
    """Return the order of matches: by time, then by arrival."""
    return functions.struct("time_ms", "offset")


_AGGREGATES: Final[Mapping[MeasureName, Callable[[Measure], Mapping[str, Column]]]] = {
    "count": lambda _: _text(functions.count("*")),
    "first_time": lambda _: _text(functions.min("time_ms")),
    "last_time": lambda _: _text(functions.max("time_ms")),
    "days": lambda _: _text(functions.count_distinct("payload")),
    "min": lambda _: _text(functions.min("payload")),
    "max": lambda _: _text(functions.max("payload")),
    "sum": _all,
    "avg": _all,
    "first": lambda _: _stored(functions.min_by("payload", _place())),
    "last": lambda _: _stored(functions.max_by("payload", _place())),
    "distinct": _distinct,
    "most_frequent": _most_frequent,
    "percentile": _percentile,
}
