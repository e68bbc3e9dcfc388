"""What should have come out: the input log folded by one plain loop, a user at a time, with nothing of the stream layer."""

import heapq
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from starling_common.kafka.topics import BEHAVIOUR, CLOCK, PROFILE
from starling_common.values import deterministic_id
from starling_common.wire import Codec, DecodeError
from starling_segments import Change, Evaluator, Known, UserState, compile_plan, parse_segment
from tests.faults.log import Logged
from tests.faults.segments import WHERES, document
from tests.faults.workers import RAISE

INPUTS = (BEHAVIOUR, PROFILE, CLOCK)
"""In the order that breaks ties."""


class Read(NamedTuple):
    """A record of an input; `record` is None when its bytes are none, or when the code of the stage raises with it."""

    logged: Logged
    received_at: int
    record: dict[str, Any] | None


class Event(NamedTuple):
    """As a plan wants to see it."""

    name: str
    time_ms: int
    properties: Mapping[str, Any]
    context: Mapping[str, Any]


@dataclass
class Truth:
    """By record key: the states and the feed.

    `letters`: (topic, partition, offset) of what had to be refused. `switches`: definitions that came during the run.
    """

    evaluator: Evaluator
    states: dict[bytes, UserState] = field(default_factory=dict)
    feed: dict[bytes, list[dict[str, Any]]] = field(default_factory=dict)
    letters: list[tuple[str, int, int]] = field(default_factory=list)
    records: int = 0
    switches: int = 0


def evaluator_of(wheres: Mapping[str, Any], computed_traits: Collection[str] = ()) -> Evaluator:
    """`wheres`: key -> condition; a segment comes after those that it refers to."""
    uses: dict[str, frozenset[str]] = {}
    segments = []
    for key, where in wheres.items():
        segment = parse_segment(document(key, where), Known(segments=uses, computed_traits=frozenset(computed_traits)))
        uses[key] = segment.uses
        segments.append(segment)
    return Evaluator(compile_plan(segments))


def folded(
    log: Mapping[str, Mapping[int, Sequence[Logged]]],
    codecs: Mapping[str, Codec],
    wheres: Mapping[str, Any] = WHERES,
    computed_traits: Collection[str] = (),
) -> Truth:
    """`log`: topic -> partition -> records in the order of their offsets."""
    truth = Truth(evaluator_of(wheres, computed_traits))
    for number in sorted(log[BEHAVIOUR]):
        inputs = [[_read(logged, codecs[topic]) for logged in log[topic].get(number, ())] for topic in INPUTS]
        _fold_partition(heapq.merge(*inputs, key=lambda read: read.received_at), truth)
    return truth


def _read(logged: Logged, codec: Codec) -> Read:
    if RAISE.encode() in logged.value:
        return Read(logged, codec.decode(logged.value)["received_at"], None)
    try:
        record = codec.decode(logged.value)
    except DecodeError:
        return Read(logged, logged.timestamp_ms * 1000, None)
    return Read(logged, record.get("order") or record["received_at"], record)


def _fold_partition(reads: Iterator[Read], truth: Truth) -> None:
    now, users = 0, set()
    for logged, _, record in reads:
        truth.records += 1
        if record is None:
            truth.letters.append((logged.topic, logged.partition, logged.offset))
            continue
        now = max(now, record["instant"] if logged.topic == CLOCK else record["event_time"])
        if logged.topic != CLOCK:
            users.add(logged.key)
            _fold(logged, record, now, truth)
    for key in users & truth.states.keys():  # the clock has passed this instant at the end
        state = truth.states[key]
        _emit(key, state, truth.evaluator.on_timer(state, now), {}, truth)


def _fold(logged: Logged, record: dict[str, Any], now: int, truth: Truth) -> None:
    evaluator, key = truth.evaluator, logged.key
    state = truth.states.get(key) or UserState(user_id=record["user_id"])
    if logged.topic == PROFILE:
        changes = evaluator.on_profile(state, json.loads(record["traits"]), record["anonymous_ids"], now)
    else:
        event = _event(record, evaluator)
        if event is None:
            truth.letters.append((logged.topic, logged.partition, logged.offset))
            return
        state.anonymous_ids = record["anonymous_ids"] or state.anonymous_ids
        changes = evaluator.on_event(state, event, now)
    truth.states[key] = state
    _emit(key, state, changes, record, truth)


def _event(record: dict[str, Any], evaluator: Evaluator) -> Event | None:
    """None when a segment would read it and cannot."""
    name, time_ms = record["name"], record["event_time"]
    if not evaluator.plan.touches(name):
        return Event(name, time_ms, {}, {})
    try:
        return Event(name, time_ms, json.loads(record["properties"]), {})
    except ValueError:
        return None


def _emit(key: bytes, state: UserState, changes: Sequence[Change], record: dict[str, Any], truth: Truth) -> None:
    members = {name for name, membership in state.memberships.items() if membership.member}
    records = []
    for change in reversed(changes):
        records.append(record_of(key, change, record, sorted(members)))
        members.symmetric_difference_update({change.segment_key})
    truth.feed.setdefault(key, []).extend(reversed(records))


def record_of(key: bytes, change: Change, record: dict[str, Any], members: list[str]) -> dict[str, Any]:
    """What of a feed record follows from the inputs alone; when it was decided does not."""
    workspace, _, user = key.decode().partition("/")
    event = change.cause == "EVENT"
    timer_id = deterministic_id("timer", workspace, user, change.effective_at)
    return {
        "event_id": deterministic_id(workspace, user, change.segment_key, change.sequence),
        "user_id": user,
        "segment_key": change.segment_key,
        "segment_version": change.segment_version,
        "status": change.status,
        "sequence": change.sequence,
        "effective_at": change.effective_at,
        "cause": change.cause,
        "message_id": record["message_id"] if event else None,
        "correlation_id": record["correlation_id"] if event else timer_id,
        "memberships": members,
    }
