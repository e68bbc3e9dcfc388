"""What the users of an account say at the instant of a replay, to each other: DataFrame in, DataFrame out, and the fold of it.

Live they say it one by one, each time that it changes. Who is in a segment in the end is the same, for its truth is one of the
state at that instant. So people are folded each alone, then told what the others of their account say, as often as conditions
are built on one another.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, functions, types
from pyspark.sql.pandas.types import to_arrow_schema

from starling_segments import AccountTally, Plan, UserState, decode_state, encode_state, to_tell
from starling_spark.jobs.replay.folding import InForce
from starling_spark.jobs.replay.setting import Setting

_TEXT: Final = types.StringType()
KEPT: Final = types.StructType(
    [
        types.StructField("partition", types.IntegerType()),
        types.StructField("key", types.BinaryType()),
        types.StructField("account", _TEXT),
        types.StructField("answers", types.MapType(_TEXT, types.BooleanType())),
        types.StructField("state", types.BinaryType()),
    ]
)
"""One person: the state's bytes, their account as `workspace/id` (null: none), and what they say to its conditions."""

_SAID: Final = types.MapType(
    _TEXT, types.StructType([types.StructField("users", types.LongType()), types.StructField("matching", types.LongType())])
)
_TOLD: Final = types.StructType([*KEPT.fields, types.StructField("said", _SAID)])
_ACCOUNT: Final = "account"


def depth(plan: Plan) -> int:
    """How many conditions on an account are built on one another; 0: there is none."""
    needs = {asked.id: asked.needs for asked in plan.accounts}

    def level(asked: str) -> int:
        return 1 + max((level(other) for other in needs[asked]), default=0)

    return max((level(asked) for asked in needs), default=0)


def kept_row(partition: int, key: bytes, state: UserState, plan: Plan) -> dict[str, Any]:
    """As `KEPT`."""
    to_tell(state, plan)
    belongs = state.belongs
    account = None if belongs is None or belongs.told is None else f"{key.decode().partition('/')[0]}/{belongs.told}"
    answers = [] if belongs is None else list(belongs.answers.items())
    return {"partition": partition, "key": key, "account": account, "answers": answers, "state": encode_state(state)}


def said(kept: DataFrame) -> DataFrame:
    """With what all users of the person's account say to each condition that each of them has answered. In `KEPT`, out `_TOLD`."""
    members = kept.where("account IS NOT NULL")
    users = members.groupBy(_ACCOUNT).agg(functions.count("*").alias("users"))
    answered = members.select(_ACCOUNT, functions.explode("answers").alias("asked", "holds"))
    counted = answered.groupBy(_ACCOUNT, "asked").agg(
        functions.count("*").alias("answered"), functions.count_if("holds").alias("matching")
    )
    whole = counted.join(users, _ACCOUNT).where("answered = users")
    entry = functions.struct("asked", functions.struct("users", "matching"))
    of_account = whole.groupBy(_ACCOUNT).agg(functions.map_from_entries(functions.collect_list(entry)).alias("said"))
    return kept.join(of_account, _ACCOUNT, "left").select(*_TOLD.fieldNames())


def heard(told: DataFrame, setting: Setting) -> DataFrame:
    """People after they have heard it. In: as `said` gives; out: `KEPT`."""
    return told.mapInArrow(_hearing(setting), KEPT)


def _hearing(setting: Setting) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def hear(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        shape, in_force = to_arrow_schema(KEPT), cache(lambda count: InForce(setting.records[:count]))
        for batch in batches:
            rows = []
            for row in batch.to_pylist():
                definitions, now_ms = setting.partitions[row["partition"]]
                rows.append(_heard(row, in_force(definitions).of(row["key"]).plan, now_ms))
            yield pa.RecordBatch.from_pylist(rows, shape)

    return hear


def _heard(row: Mapping[str, Any], plan: Plan, now_ms: int) -> dict[str, Any]:
    state = decode_state(row["state"])
    if row["account"] is not None and plan.accounts:
        own = dict(row["answers"])
        others = {asked: (told["users"] - 1, told["matching"] - own[asked]) for asked, told in row["said"] or ()}
        plan.on_account(state, AccountTally(row["account"].partition("/")[2], others), now_ms)
        plan.on_timer(state, now_ms)
    return kept_row(row["partition"], row["key"], state, plan)
