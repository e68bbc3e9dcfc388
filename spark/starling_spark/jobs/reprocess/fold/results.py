"""Edge: rows as Arrow batches -> their results, in Spark's Python workers, with one user's profile in memory at a time."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, functions, types
from pyspark.sql.pandas.types import to_arrow_schema

from starling_common.failpoints.raising import Raising
from starling_common.failures import is_of_installation, poison
from starling_common.kafka.topics import BEHAVIOUR, PROFILE, load_catalogue
from starling_common.outcome import Refused
from starling_common.wire import schema_text
from starling_items.profile import Profile, decode_profile, encode_profile
from starling_spark.failpoints import raising
from starling_spark.isolation import IsolatedFold
from starling_spark.jobs.reprocess.fold.folding import Made, Making, event_time_ms, made_of, refused_row
from starling_spark.jobs.reprocess.fold.raw import PLACE, raw_columns
from starling_spark.kafka.codec import NO_ID, Wire
from starling_spark.kafka.columns import columns_of, row_of
from starling_spark.kafka.decoding import REFUSED

Batches = Iterable[pa.RecordBatch]
Ask = Callable[[], Making]
"""Returns the parameters; called in a worker, which has the broadcast catalog."""

_BATCH: Final = 2_000


@cache
def result_columns() -> types.StructType:
    """Return `raw.PLACE`, the outcome, and the result: at most one of `behaviour`, `profile` and `refused` is not null.

    `value`: the bytes of a refused record.
    """
    return types.StructType(
        [
            *PLACE.fields,
            types.StructField("outcome", types.StringType()),
            types.StructField("behaviour", columns_of(_schema(BEHAVIOUR))),
            types.StructField("profile", columns_of(_schema(PROFILE))),
            types.StructField("value", types.BinaryType()),
            types.StructField("refused", REFUSED),
        ]
    )


def with_instants(raw: DataFrame, making: Ask) -> DataFrame:
    """Return the rows with `instant_ms`. In: `raw.raw_columns`."""
    out = types.StructType([*raw_columns().fields, types.StructField("instant_ms", types.LongType())])
    return raw.mapInArrow(_reader(out, making), out)


def results(people: DataFrame, wire: Wire, making: Ask) -> DataFrame:
    """Return the result of each raw item. In: raw items, grouped by user and in order."""
    return people.mapInArrow(_folder(wire, making), result_columns())


def _reader(out: types.StructType, making: Ask) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def read(batches: Batches) -> Iterator[pa.RecordBatch]:
        shape, given = to_arrow_schema(out), making()
        for batch in batches:
            rows = batch.select(["origin_key", "item", "products", "refused"]).to_pylist()
            columns = [*batch.columns, pa.array([_instant_ms(row, given) for row in rows], pa.int64())]
            cast = [one if one.type == field.type else one.cast(field.type) for one, field in zip(columns, shape, strict=True)]
            yield pa.RecordBatch.from_arrays(cast, schema=shape)

    return read


def _instant_ms(row: Mapping[str, Any], making: Making) -> int | None:
    """Return the time to which a row advances the event clock; a row that makes the code raise is refused by the fold."""
    try:
        return event_time_ms(row, making)
    except Exception as cause:
        if is_of_installation(cause):
            raise
        return None


def _folder(wire: Wire, making: Ask) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def fold(batches: Batches) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches for row in batch.to_pylist())
        shape, found = to_arrow_schema(result_columns()), results_of(rows, wire, making(), raising())
        while some := list(islice(found, _BATCH)):
            yield _batch(some, shape)

    return fold


def _batch(rows: list[dict[str, Any]], shape: pa.Schema) -> pa.RecordBatch:
    """Return the results; one with a value that does not fit its column is refused."""
    try:
        return pa.RecordBatch.from_pylist(rows, shape)
    except Exception as cause:
        if is_of_installation(cause):
            raise
        return pa.RecordBatch.from_pylist([_fitting(row, shape) for row in rows], shape)


def _fitting(row: dict[str, Any], shape: pa.Schema) -> dict[str, Any]:
    try:
        pa.RecordBatch.from_pylist([row], shape)
    except Exception as cause:
        if is_of_installation(cause):
            raise
        why = poison(cause)
        refused = {"code": why.code, "message": why.message, "schema_id": NO_ID}
        return {
            **_place(row),
            "outcome": refused_row(why).outcome,
            "behaviour": None,
            "profile": None,
            "value": None,
            "refused": refused,
        }
    return row


def results_of(
    rows: Iterable[Mapping[str, Any]], wire: Wire, making: Making, armed: Raising | None = None
) -> Iterator[dict[str, Any]]:
    """Yield a result for each row, user by user. A row that makes the code raise twice is refused, and changes no profile.

    `armed`: the failpoint of the process.
    """
    columns = {topic: _columns(topic) for topic in (BEHAVIOUR, PROFILE)}

    def fold(key: bytes | None, profile: Profile, row: Mapping[str, Any]) -> dict[str, Any]:
        made = made_of(row, key, profile, making)
        result = {
            **_place(row),
            "outcome": made.outcome,
            "behaviour": made.behaviour and columns[BEHAVIOUR](made.behaviour),
            "profile": made.profile and columns[PROFILE](made.profile),
            **_refusal(row, made, wire),
        }
        if armed is not None:
            armed.passed("fold", str(row).encode())
        return result

    for (_, key), past in groupby(rows, key=itemgetter("origin_partition", "origin_key")):
        folding = IsolatedFold(Profile, partial(fold, key), lambda profile: decode_profile(encode_profile(profile)))
        for row in past:
            result = folding.take(row)
            yield _raised(row, result, wire) if isinstance(result, Refused) else result


def _place(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in PLACE.fieldNames()}


def _raised(row: Mapping[str, Any], why: Refused, wire: Wire) -> dict[str, Any]:
    """Return the result of a row that makes the code raise; without its bytes if they cannot be encoded either."""
    made = refused_row(why)
    try:
        refusal = _refusal(row, made, wire)
    except Exception as cause:
        if is_of_installation(cause):
            raise
        refusal = {"value": None, "refused": {"code": why.code, "message": why.message, "schema_id": NO_ID}}
    return {**_place(row), "outcome": made.outcome, "behaviour": None, "profile": None, **refusal}


def _columns(topic: str) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    names, values = columns_of(_schema(topic)).fieldNames(), row_of(_schema(topic))
    return lambda event: dict(zip(names, values(event), strict=True))


def _refusal(row: Mapping[str, Any], made: Made, wire: Wire) -> dict[str, Any]:
    if made.refused is None:
        return {"value": None, "refused": None}
    value, schema_id = row["value"], NO_ID
    if value is not None and row["refused"] is not None:
        schema_id = row["refused"]["schema_id"]
    elif row["item"] is not None:
        value, schema_id = wire.codec(row["origin_topic"]).encode(row["item"]), wire.of(row["origin_topic"]).schema_id
    refused = {"code": made.refused.code, "message": made.refused.message, "schema_id": schema_id}
    return {"value": value, "refused": refused}


def origin_columns() -> list[Any]:
    """Return the columns `lakehouse.tables.ORIGIN` of a result."""
    origin = [functions.col(name) for name in PLACE.fieldNames() if name != "origin_micros"]
    origin.insert(3, functions.timestamp_micros("origin_micros").alias("origin_timestamp"))
    return origin


@cache
def _schema(topic: str) -> str:
    return schema_text(load_catalogue().topics[topic].schema)
