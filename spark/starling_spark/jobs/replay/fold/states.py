"""Edge: past records as Arrow batches -> user states, in the Python workers of Spark, with one user in memory at a time."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, types
from pyspark.sql.pandas.types import to_arrow_schema

from starling_common.failpoints.raising import Raising
from starling_common.failures import is_of_installation, poison
from starling_common.outcome import Refused
from starling_common.values import split_key
from starling_rules.events import Reported
from starling_rules.history import Place, user_place
from starling_rules.rules import Rules
from starling_segments import Plan, UserState, decode_state, encode_state
from starling_spark.failpoints import raising
from starling_spark.history.past import FIELDS
from starling_spark.history.records import InputRecord, past_record
from starling_spark.history.refused import Refuse
from starling_spark.isolation import IsolatedFold
from starling_spark.jobs.replay.fold.accounts import USER_STATES, after_account_answers, depth, state_row, with_account_answers
from starling_spark.jobs.replay.fold.folding import InForce, apply, new_user
from starling_spark.jobs.replay.fold.setting import Setting

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
"""A user known at the instant, with the current memberships. `traits` is JSON text."""

Make: TypeAlias = Callable[[int, bytes, UserState, Plan], dict[str, Any]]
"""Partition, key, state and plan of a user -> a row."""

_BATCH: Final = 2_000
_TOPICS: Final = tuple(FIELDS)


def ignore(_place: Place, _why: Refused) -> None:
    """Refuse a record without a trace."""


def states(people: DataFrame, setting: Setting, refuse: Refuse = ignore) -> DataFrame:
    """Return the final state of each user. In: past records, grouped by user. With account conditions, runs a Spark job.

    A record that makes the fold raise twice goes to `refuse`, and the user's state is as without it.
    """
    levels = max((_depth(InForce(setting.records[:count])) for count, _ in setting.partitions.values()), default=0)
    if not levels:
        return people.mapInArrow(_folder(setting, _final_row, STATES, refuse), STATES)
    found = people.mapInArrow(_folder(setting, state_row, USER_STATES, refuse), USER_STATES)
    for _ in range(levels):
        # The checkpoint avoids a second fold of all past records.
        found = after_account_answers(with_account_answers(found.localCheckpoint()), setting, refuse)
    return found.mapInArrow(_final_rows, STATES)


def _depth(in_force: InForce) -> int:
    return max((depth(rules.plan) for rules in in_force.rules.values()), default=0)


def _folder(
    setting: Setting, made: Make, out: types.StructType, refuse: Refuse
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def fold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches for row in batch.to_pylist())
        shape, people = to_arrow_schema(out), users(rows, setting, made, refuse, raising())
        while some := list(islice(people, _BATCH)):
            yield pa.RecordBatch.from_pylist(some, shape)

    return fold


def users(
    rows: Iterable[Mapping[str, Any]], setting: Setting, made: Make, refuse: Refuse = ignore, armed: Raising | None = None
) -> Iterator[dict[str, Any]]:
    """Yield a row for each known user; the rows of `past.of_users` are user by user. `armed`: the failpoint of the process."""
    in_force = cache(lambda count: InForce(setting.records[:count]))
    for (partition, key), past in groupby(rows, key=itemgetter("partition", "key")):
        definitions, now_ms = setting.partitions[partition]
        rules = in_force(definitions).of(key)
        fold = IsolatedFold(partial(new_user, key), partial(_fold, rules, armed), _copy)
        for row in past:
            why = fold.take(row)
            if why is not None:
                refuse((_TOPICS[row["place"]], partition, row["offset"]), why)
        try:
            user = _at_the_end((partition, key), fold.state, rules, now_ms, made)
        except Exception as cause:
            if is_of_installation(cause):
                raise
            refuse(user_place(partition, key), poison(cause))
        else:
            if user is not None:
                yield user


def _fold(rules: Rules, armed: Raising | None, state: UserState, row: Mapping[str, Any]) -> None:
    record = input_record(row)
    if record is not None:
        apply(state, record, rules, row["stream_ms"])
    if armed is not None:
        armed.passed("fold", str(row).encode())


def _copy(state: UserState) -> UserState:
    return decode_state(encode_state(state))


def _at_the_end(user: tuple[int, bytes], state: UserState, rules: Rules, now_ms: int, made: Make) -> dict[str, Any] | None:
    rules.evaluator.on_timer(state, now_ms)
    return made(*user, state, rules.plan) if state.known else None  # all records of an unknown user were refused


def _final_row(_partition: int, key: bytes, state: UserState, _plan: Plan) -> dict[str, Any]:
    return _final(key, state)


def _final_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    shape = to_arrow_schema(STATES)
    for batch in batches:
        rows = [_final(row["key"], decode_state(row["state"])) for row in batch.select(["key", "state"]).to_pylist()]
        yield pa.RecordBatch.from_pylist(rows, shape)


def input_record(row: Mapping[str, Any]) -> InputRecord | None:
    """Return the segmenter's input record for a row of `past.timed`; None when segments do not read it. No row is of the clock."""
    found = past_record(row)
    return found.at(row["instant_ms"]) if isinstance(found, Reported) else found


def _final(key: bytes, state: UserState) -> dict[str, Any]:
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
