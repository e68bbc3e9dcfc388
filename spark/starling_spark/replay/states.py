"""Edge: people's past as Arrow batches -> their states, in the Python workers of Spark; one person at a time is in memory."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, types
from pyspark.sql.pandas.types import to_arrow_schema

from starling_common.topics import BEHAVIOUR, LIST_MEMBERSHIP, PROFILE
from starling_common.values import split_key
from starling_rules.events import BEHAVIOUR_FIELDS, Behaviour, Listed, Profile
from starling_segments import UserState
from starling_spark.replay.folding import Folded, Happened, InForce, folded
from starling_spark.replay.past import FIELDS

STATES: Final = types.StructType(
    [
        types.StructField("workspace", types.StringType()),
        types.StructField("user_id", types.StringType()),
        types.StructField("anonymous_ids", types.ArrayType(types.StringType())),
        types.StructField("traits", types.StringType()),
        types.StructField("group_id", types.StringType()),
        types.StructField(
            "memberships",
            types.ArrayType(
                types.StructType(
                    [
                        types.StructField("segment_key", types.StringType()),
                        types.StructField("segment_version", types.IntegerType()),
                        types.StructField("entered_ms", types.LongType()),
                    ]
                )
            ),
        ),
    ]
)
"""A person known at the instant; of `memberships` only those that they are in. `traits` is JSON text."""

_BATCH: Final = 2_000
_TOPICS: Final = tuple(FIELDS)


@dataclass(frozen=True, slots=True)
class Setting:
    """What each worker is given. `records`: of `segments.definitions`, in their order; `partitions`: partition -> (how many
    of them were in force there, up to when its timers fire, epoch ms).
    """

    records: tuple[Mapping[str, Any], ...]
    partitions: Mapping[int, tuple[int, int]]


def states(people: DataFrame, setting: Setting) -> DataFrame:
    """Shape: in as `past.of_people`; out `STATES`."""
    return people.mapInArrow(_folder(setting), STATES)


def _folder(setting: Setting) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def fold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches for row in batch.to_pylist())
        shape, people = to_arrow_schema(STATES), _people(rows, setting)
        while some := list(islice(people, _BATCH)):
            yield pa.RecordBatch.from_pylist(some, shape)

    return fold


def _people(rows: Iterable[Mapping[str, Any]], setting: Setting) -> Iterator[dict[str, Any]]:
    in_force = cache(lambda count: InForce(setting.records[:count]))
    for (partition, key), past in groupby(rows, key=itemgetter("partition", "key")):
        definitions, now_ms = setting.partitions[partition]
        state = folded(key, (Folded(happened(row), row["stream_ms"]) for row in past), in_force(definitions).of(key), now_ms)
        if state.known:  # everything of the others was refused
            yield _shown(key, state)


def happened(row: Mapping[str, Any]) -> Happened:
    """A row of `past.PAST` as a segment sees it; the clock's are nobody's, and none of them."""
    topic = _TOPICS[row["place"]]
    values = row if topic == LIST_MEMBERSHIP else {**row, "event_time": row["instant_ms"]}
    if topic == BEHAVIOUR:
        return Behaviour(tuple([values[name] for name in BEHAVIOUR_FIELDS]))
    if topic == PROFILE:
        return Profile(*[values[name] for name in Profile._fields])
    return Listed(*[values[name] for name in Listed._fields])


def _shown(key: bytes, state: UserState) -> dict[str, Any]:
    workspace, user_id = split_key(key)
    inside = [(key, one) for key, one in sorted(state.memberships.items()) if one.member]
    return {
        "workspace": workspace,
        "user_id": user_id,
        "anonymous_ids": list(state.anonymous_ids),
        "traits": state.traits_json,
        "group_id": None if state.belongs is None else state.belongs.account,
        "memberships": [{"segment_key": key, "segment_version": one.version, "entered_ms": one.entered_at} for key, one in inside],
    }
