"""Pure core: the history of one user, folded apart from the live state for the leaves that a step adds."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from starling_common.failures import is_of_installation, poison
from starling_segments import MeasurePlan, UserState, decode_state, encode_state
from starling_spark.jobs.profiles.fold.chunks import Hit, LostHit, Seeds, UserHits

_USERS_A_PACK = 100
_BYTES_A_PACK = 256 * 1024


class History(NamedTuple):
    """The encoded state of a user, None for an empty one; the events that raise; and the stream time of the last event."""

    state: bytes | None
    lost: list[LostHit]
    now_ms: int


def fold_history(measures: MeasurePlan, user: str, runs: Iterable[UserHits]) -> History:
    """Return the history of runs of events in the order of arrival."""
    kept = list(runs)
    state, lost = UserState(), list[LostHit]()
    try:
        _fold(measures, state, (hit for run in kept for hit in run.hits))
        encoded = encode_state(state)
    except Exception as cause:
        if is_of_installation(cause):
            raise
        state, lost = _fold_each(measures, user, kept)
        encoded = encode_state(state)
    now_ms = max((now_ms for run in kept for _, now_ms, _ in run.hits), default=0)
    return History(encoded if state.accumulators or state.waiting else None, lost, now_ms)


def _fold(measures: MeasurePlan, state: UserState, hits: Iterable[Hit]) -> None:
    latest = 0
    for time_ms, now_ms, matches in hits:
        latest = max(latest, now_ms)
        measures.fold(state, (time_ms, matches), latest)


def _fold_each(measures: MeasurePlan, user: str, runs: Iterable[UserHits]) -> tuple[UserState, list[LostHit]]:
    """As `fold_history`, with a copy of the state for each event, because an event that raises changes nothing."""
    kept, lost = encode_state(UserState()), list[LostHit]()
    for run in runs:
        for hit in run.hits:
            state = decode_state(kept)
            try:
                _fold(measures, state, [hit])
                kept = encode_state(state)
            except Exception as cause:
                if is_of_installation(cause):
                    raise
                why = poison(cause)
                lost.append(LostHit(user, hit[0], run.correlation_id, why.code, why.message))
    return decode_state(kept), lost


def packs(histories: Iterable[tuple[int, str, History]]) -> Iterator[tuple[int, bytes]]:
    """Yield (partition, encoded `Seeds`) of (partition, user, history); each pack is of one partition."""
    partition, seeds, size = -1, Seeds(), 0
    for place, user, (state, lost, now_ms) in histories:
        if (place != partition or len(seeds.states) >= _USERS_A_PACK or size >= _BYTES_A_PACK) and (seeds.states or seeds.lost):
            yield partition, msgspec.msgpack.encode(seeds)
            seeds, size = Seeds(), 0
        partition = place
        seeds.lost += lost
        seeds.now_ms = max(seeds.now_ms, now_ms)
        if state is not None:
            seeds.states[user] = state
            size += len(state)
    if seeds.states or seeds.lost:
        yield partition, msgspec.msgpack.encode(seeds)
