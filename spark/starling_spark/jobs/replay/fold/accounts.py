"""Account conditions at the instant of a replay: DataFrame in, DataFrame out, and the fold.

Live, each user publishes an answer when it changes. The final memberships are the same, because they depend only on the state at
that instant. Each user is folded alone and then receives the answers of the other users of the account, once for each level of
nested conditions.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, functions, types
from pyspark.sql.pandas.types import to_arrow_schema

from starling_common.failures import is_of_installation, poison
from starling_rules.history import user_place
from starling_segments import (
    AccountTally,
    Evaluator,
    Plan,
    UserState,
    account_updates,
    decode_state,
    encode_state,
)
from starling_spark.history.refused import Refuse
from starling_spark.jobs.replay.fold.folding import InForce
from starling_spark.jobs.replay.fold.setting import Setting

_TEXT: Final = types.StringType()
USER_STATES: Final = types.StructType(
    [
        types.StructField("partition", types.IntegerType()),
        types.StructField("key", types.BinaryType()),
        types.StructField("account", _TEXT),
        types.StructField("answers", types.MapType(_TEXT, types.BooleanType())),
        types.StructField("state", types.BinaryType()),
    ]
)
"""One user: the state's bytes, the account as `workspace/id` (null: none), and the answers to the account conditions."""

_ANSWERS: Final = types.MapType(
    _TEXT, types.StructType([types.StructField("users", types.LongType()), types.StructField("matching", types.LongType())])
)
_WITH_ANSWERS: Final = types.StructType([*USER_STATES.fields, types.StructField("account_answers", _ANSWERS)])
_ACCOUNT: Final = "account"


def depth(plan: Plan) -> int:
    """Return the nesting depth of account conditions; 0: there are none."""
    needs = {condition.id: condition.needs for condition in plan.accounts}

    def level(condition: str) -> int:
        return 1 + max((level(other) for other in needs[condition]), default=0)

    return max((level(condition) for condition in needs), default=0)


def state_row(partition: int, key: bytes, state: UserState, plan: Plan) -> dict[str, Any]:
    """Return a row of `USER_STATES`."""
    account_updates(state, plan)
    belongs = state.belongs
    account_id = None if belongs is None else belongs.reported_to
    account = None if account_id is None else f"{key.decode().partition('/')[0]}/{account_id}"
    answers = [] if belongs is None else list(belongs.answers.items())
    return {"partition": partition, "key": key, "account": account, "answers": answers, "state": encode_state(state)}


def with_account_answers(states: DataFrame) -> DataFrame:
    """Return the users with the answers of their account to each condition that all of its users have answered.

    Shape: in `USER_STATES`, out `_WITH_ANSWERS`.
    """
    members = states.where("account IS NOT NULL")
    users = members.groupBy(_ACCOUNT).agg(functions.count("*").alias("users"))
    answered = members.select(_ACCOUNT, functions.explode("answers").alias("condition", "holds"))
    counted = answered.groupBy(_ACCOUNT, "condition").agg(
        functions.count("*").alias("answered"), functions.count_if("holds").alias("matching")
    )
    whole = counted.join(users, _ACCOUNT).where("answered = users")
    entry = functions.struct("condition", functions.struct("users", "matching"))
    of_account = whole.groupBy(_ACCOUNT).agg(functions.map_from_entries(functions.collect_list(entry)).alias("account_answers"))
    return states.join(of_account, _ACCOUNT, "left").select(*_WITH_ANSWERS.fieldNames())


def after_account_answers(users: DataFrame, setting: Setting, refuse: Refuse) -> DataFrame:
    """Return the states of the users after the fold of the answers of their accounts.

    A user at whom the fold raises goes to `refuse`, and stays as before.
    """
    return users.mapInArrow(_answers_folder(setting, refuse), USER_STATES)


def _answers_folder(setting: Setting, refuse: Refuse) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def fold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        shape, in_force = to_arrow_schema(USER_STATES), cache(lambda count: InForce(setting.records[:count]))
        for batch in batches:
            rows = []
            for row in batch.to_pylist():
                definitions, now_ms = setting.partitions[row["partition"]]
                evaluator = in_force(definitions).of(row["key"]).evaluator
                try:
                    rows.append(_with_answers_folded(row, evaluator, now_ms))
                except Exception as cause:
                    if is_of_installation(cause):
                        raise
                    refuse(user_place(row["partition"], row["key"]), poison(cause))
                    rows.append({name: row[name] for name in USER_STATES.fieldNames()})
            yield pa.RecordBatch.from_pylist(rows, shape)

    return fold


def _with_answers_folded(row: Mapping[str, Any], evaluator: Evaluator, now_ms: int) -> dict[str, Any]:
    state = decode_state(row["state"])
    if row["account"] is not None and evaluator.plan.accounts:
        own = dict(row["answers"])
        others = {one: (tally["users"] - 1, tally["matching"] - own[one]) for one, tally in row["account_answers"] or ()}
        evaluator.on_account(state, AccountTally(row["account"].partition("/")[2], others), now_ms)
        evaluator.on_timer(state, now_ms)
    return state_row(row["partition"], row["key"], state, evaluator.plan)
