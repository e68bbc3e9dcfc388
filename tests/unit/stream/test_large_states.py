"""A state that grows over the limit: only the record that exceeds it is refused."""

import msgspec

from starling_common.settings import Clock
from starling_stream.model.processor import Decoded, Inbound, Service, Unit, WithoutPlan
from starling_stream.model.rows import NEVER, row_of
from starling_stream.testing import Fed, MemoryTask

U1, U2 = b"default/u1", b"default/u2"


class Event(msgspec.Struct):
    received_at: int
    text: str


class Collector(WithoutPlan[list[str]]):
    """Keeps every text and emits their number; a timer deletes all but the first."""

    def decode(self, topic: str, value: bytes) -> Decoded:
        decoded = msgspec.json.decode(value, type=Event)
        return Decoded(decoded, decoded.received_at, decoded.received_at)

    def encode_state(self, state: list[str]) -> bytes:
        return msgspec.json.encode(state)

    def decode_state(self, data: bytes) -> list[str]:
        return msgspec.json.decode(data, type=list[str])

    def process(self, record: Inbound, unit: Unit[list[str]]) -> None:
        state = unit.get(record.key) or []
        state.append(record.value.text)
        unit.put(record.key, state, record.received_at + 1_000)
        unit.emit("out", record.key, b"%d" % len(state), record.received_at, [])

    def fire(self, key: bytes, unit: Unit[list[str]]) -> None:
        state = unit.get(key)
        assert state is not None
        unit.put(key, state[:1], None)


MIB = "x" * (1024 * 1024)


def _task() -> "MemoryTask[list[str]]":
    return MemoryTask(Service("collector", ("in",), Collector(), 0, Clock.EVENT))


def _fed(key: bytes, at: int, text: str) -> Fed:
    return Fed("in", key, msgspec.json.encode(Event(at, text)))


def _outputs(task: "MemoryTask[list[str]]") -> list[tuple[bytes, bytes]]:
    return [(output.key, output.value) for output in task.take_outputs("out")]


def _refused(task: "MemoryTask[list[str]]") -> list[tuple[bytes, int, str]]:
    return [(refusal.record.key, refusal.record.offset, refusal.code) for refusal in task.refusals]


def test_a_state_of_some_megabytes_is_kept() -> None:
    task = _task()
    task.feed_all([_fed(U1, number, MIB) for number in range(3)])
    assert task.state(U1) == [MIB] * 3
    assert _refused(task) == []


def test_only_the_records_that_would_exceed_the_limit_are_refused() -> None:
    task = _task()
    task.feed_all([_fed(U1, 1, "first"), *(_fed(U1, at, MIB) for at in (2, 3, 4, 5, 6)), _fed(U2, 7, "other"), _fed(U1, 8, "last")])
    assert _refused(task) == [(U1, 4, "state_too_large"), (U1, 5, "state_too_large")]
    assert "default/u1 would have 4,194,325 bytes, over 4,194,304" in task.refusals[1].message
    assert task.state(U1) == ["first", MIB, MIB, MIB, "last"]
    assert task.state(U2) == ["other"]
    assert _outputs(task) == [(U1, b"1"), (U1, b"2"), (U1, b"3"), (U1, b"4"), (U2, b"1"), (U1, b"5")]
    assert (task.due_ms(U1), task.stream_time_ms) == (1_008, 8)


def test_one_unit_and_many_have_the_same_result() -> None:
    records = [_fed(U1, number, MIB[: 700_000 + number]) for number in range(9)]
    together, apart = _task(), _task()
    together.feed_all(records)
    for record in records:
        apart.feed_all([record])
    assert _refused(together) == _refused(apart) != []
    assert together.states() == apart.states()
    assert _outputs(together) == _outputs(apart)


def test_the_first_record_of_a_key_can_be_refused() -> None:
    task = _task()
    task.feed_all([_fed(U1, 1, MIB * 5), _fed(U2, 2, "other")])
    assert _refused(task) == [(U1, 0, "state_too_large")]
    assert (task.states(), _outputs(task)) == ({U2: ["other"]}, [(U2, b"1")])


def test_timers_fire_beside_a_refused_record() -> None:
    task = _task()
    task.feed_all([_fed(U1, 1, "first"), _fed(U2, 2, "other")])
    task.feed_all([_fed(U2, 2_000, MIB * 5)])
    assert _refused(task) == [(U2, 2, "state_too_large")]
    assert (task.due_ms(U1), task.due_ms(U2)) == (None, None)  # both were due at a second


def test_a_state_over_the_limit_may_become_smaller() -> None:
    """Such as a state of a release without the limit; a record that makes it larger is refused."""
    task = MemoryTask(
        Service("collector", ("in",), Collector(), 0, Clock.EVENT),
        rows={U1: row_of(1, NEVER + msgspec.json.encode([MIB] * 6))},
    )
    task.feed_all([_fed(U1, 1, "more")])
    assert _refused(task) == [(U1, 0, "state_too_large")]
    shrunk = task.restart(Service("collector", ("in",), _Shrinking(), 0, Clock.EVENT))
    shrunk.feed_all([_fed(U1, 2, "less")])
    assert shrunk.state(U1) == [MIB] * 5
    assert _refused(shrunk) == []


class _Shrinking(Collector):
    def process(self, record: Inbound, unit: Unit[list[str]]) -> None:
        state = unit.get(record.key)
        assert state is not None
        unit.put(record.key, state[1:], None)
