"""A record or timer that makes the code raise becomes a dead letter, and everything else is as in a run without it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from starling_common.outcome import Refused
from starling_common.settings import Clock
from starling_common.wire import RegistryUnavailable
from starling_stream.fold.batches import Batches, Limits
from starling_stream.fold.bisection import Bisection
from starling_stream.fold.memory import MemoryRows
from starling_stream.fold.merge import Arrival
from starling_stream.fold.task import Step, Task
from starling_stream.fold.task_fold import POSTPONED_MS, TaskFold
from starling_stream.model.errors import StateUnreadable
from starling_stream.model.failpoints import Failpoints
from starling_stream.model.meta import TaskMeta
from starling_stream.model.ports import Refusal
from starling_stream.model.processor import Decoded, Inbound, Service, Unit
from starling_stream.model.records import ReadRecord
from starling_stream.model.rows import due_bytes, due_ms, row_due
from starling_stream.state.failures import StoredFailures
from starling_stream.state.local_store import TaskStore, store_memory
from starling_stream.testing import MemoryHistory
from tests.unit.stream.counting import HOUR_MS, Counted, Counter, event

NOW = 10**15


@given(
    st.integers(1, 300).flatmap(lambda n: st.tuples(st.just(n), st.frozensets(st.integers(0, n - 1), max_size=6))),
    st.integers(1, 100),
    st.lists(st.booleans(), max_size=20),
)
def test_a_search_finds_exactly_the_records_that_fail(
    records: tuple[int, frozenset[int]], most: int, restarts: Sequence[bool]
) -> None:
    count, poison = records
    bisection, position, units, tries = Bisection(), 0, 0, 0
    found: set[int] = set()
    restarting = iter(restarts)
    while position < count:
        tries += 1
        size = min(most, count - position, bisection.records if bisection.searching else most)
        if poison.difference(found).intersection(range(position, position + size)):
            if bisection.failed(units, size, 0 if bisection.searching else 1):
                assert size == 1
                found.add(position)
            if next(restarting, False):
                bisection = Bisection(bisection.failed_at)
        else:
            position, units = position + size, units + 1
            bisection.committed(size)
    assert found == poison
    assert tries <= count + len(poison) * 20 + sum(restarts) * 20


def test_a_failure_that_is_not_repeated_at_its_position_begins_no_search() -> None:
    bisection = Bisection()
    for position in range(5):
        assert not bisection.failed(position, 1, 1)
        assert not bisection.searching
    assert not bisection.failed(4, 1, 1)
    assert bisection.searching


class Poisoned(Counter):
    """Counts exactly, whatever the batches are, and raises for some offsets, values and keys."""

    def __init__(self, poison: Mapping[int, str], keys: frozenset[bytes] = frozenset()) -> None:
        super().__init__()
        self.poison = poison
        self.keys = keys

    def decode(self, topic: str, value: bytes) -> Decoded:
        decoded = super().decode(topic, value)
        if self.poison.get(decoded.received_at) == "decode":
            raise RecursionError("too deep")
        return decoded

    def encode_state(self, state: Counted) -> bytes:
        if state.total < 0:
            raise OverflowError("a count below zero")
        return super().encode_state(state)

    def process(self, record: Inbound, unit: Unit[Counted]) -> None:
        state = unit.get(record.key)
        if state is not None and state.plan != "quiet" and state.last_ms + HOUR_MS < unit.stream_time_ms:
            self._quiet(record.key, unit)
        super().process(record, unit)
        state = unit.get(record.key)
        assert state is not None
        state.plan = ""
        match self.poison.get(record.offset):
            case "process":
                raise ZeroDivisionError("division by zero")
            case "encode":
                state.total = -1_000
            case "output":
                unit.emit("out", record.key, b"too large", record.received_at, [])
            case "world":
                raise OSError("no space left on device")

    def fire(self, key: bytes, unit: Unit[Counted]) -> None:
        if key in self.keys:
            raise KeyError(key)
        self._quiet(key, unit)

    def _quiet(self, key: bytes, unit: Unit[Counted]) -> None:
        super().fire(key, unit)
        state = unit.get(key)
        assert state is not None
        state.plan = "quiet"


@dataclass
class Failures:
    at: int | None = None
    seen: list[int] = field(default_factory=list)

    def failed_at(self) -> int | None:
        return self.at

    def failed(self, units: int, cause: Exception) -> None:
        self.at = units
        self.seen.append(units)

    def found(self, origin: str, why: Refused) -> None:
        """Nothing to log."""


@dataclass
class Run:
    """A worker with one task, driven step by step: commits, aborts of the world, outputs refused by the broker, restarts."""

    records: Sequence[ReadRecord]
    processor: Poisoned
    limits: Limits = field(default_factory=lambda: Limits(7, 10, 3))
    rows: MemoryRows = field(default_factory=MemoryRows)
    meta: TaskMeta = field(default_factory=TaskMeta)
    offset: int = 0
    failures: Failures = field(default_factory=Failures)
    outputs: list[tuple[bytes, bytes]] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.service: Service[Counted] = Service("counter", ("in",), self.processor, 20, Clock.EVENT)
        self.task = Task(self.service, 0, 1)
        self.task.run(self.rows, TaskFold(self.service, 0, self.meta), {"in": self.offset}, self.failures)
        end = len(self.records) and self.records[-1].offset + 1
        self.task.note_fetch({"in": 1}, {"in": (end, end, end, 0)})
        self.task.receive("in", self.records, Arrival(0))
        self.batches = Batches(self.limits, lambda: b"")

    def collect(self) -> Step | None:
        steps = self.batches.collect([self.task], NOW)
        return steps[0] if steps else None

    def commit(self, step: Step) -> None:
        self.offset = step.offsets.get("in", self.offset)
        if step.sealed is not None:
            self.rows.apply(step.sealed.changes)
            self.meta = step.sealed.meta
            self.outputs += [(output.key, output.value) for output in step.sealed.outputs]
            self.refusals += step.sealed.refusals
        self.task.committed(step)

    def to_end(self, accidents: Sequence[str] = ()) -> "Run":
        coming = iter(accidents)
        for _ in range(5_000):
            accident = next(coming, "")
            if accident == "restart":
                self.start()
            step = self.collect()
            if step is None:
                if not self.task.merge.size("in") and not self.rows.due(self.task.fold.due_until(), 1):
                    return self
            elif step.sealed is not None and any(output.value == b"too large" for output in step.sealed.outputs):
                self.task.roll_back([self.task.output_refused(step, ValueError("MSG_SIZE_TOO_LARGE"))])
            elif accident == "abort":
                self.task.roll_back([step])
            else:
                self.commit(step)
        raise AssertionError(f"no end after 5,000 steps, at offset {self.offset}")

    def of_users(self, without: frozenset[bytes] = frozenset()) -> dict[bytes, list[bytes]]:
        found: dict[bytes, list[bytes]] = {}
        for key, value in self.outputs:
            if key not in without:
                found.setdefault(key, []).append(value)
        return found


class Story(NamedTuple):
    records: list[ReadRecord]
    poison: dict[int, str]
    keys: frozenset[bytes]


def _records(users: Sequence[int], minutes: int) -> list[ReadRecord]:
    """Return one event for each of the users, in order of arrival, so many minutes apart."""
    return [
        ReadRecord("in", 0, offset, 0, b"default/u%d" % user, event(offset, offset * minutes * 60_000), ())
        for offset, user in enumerate(users)
    ]


def _stories() -> st.SearchStrategy[Story]:
    def story(users: list[int]) -> st.SearchStrategy[Story]:
        offsets = st.integers(0, len(users) - 1)
        kinds = st.sampled_from(["process", "encode", "output", "decode"])
        keys = st.frozensets(st.sampled_from([b"default/u%d" % user for user in users]), max_size=2)
        records = st.integers(1, 50).map(lambda minutes: _records(users, minutes))
        return st.builds(Story, records, st.dictionaries(offsets, kinds, max_size=4), keys)

    return st.lists(st.integers(0, 4), min_size=1, max_size=40).flatmap(story)


@given(_stories(), st.lists(st.sampled_from(["", "", "abort", "restart"]), max_size=30), st.integers(1, 20))
@example(Story(_records([0], 1), {0: "output"}, frozenset()), [], 1)
@example(Story(_records([0, 1] * 20, 1), {7: "process"}, frozenset()), [], 20)
@example(Story(_records([0, 1, 2, 3, 4] * 8, 40), {7: "output", 8: "encode", 30: "process"}, frozenset({b"default/u2"})), [], 20)
def test_all_other_records_are_folded_as_if_the_poison_had_not_come(story: Story, accidents: list[str], most: int) -> None:
    run = Run(story.records, Poisoned(story.poison, story.keys), Limits(most, 10, 3)).to_end(accidents)
    others = [record for record in story.records if record.offset not in story.poison]
    expected = Run(others, Poisoned({}), Limits(most, 10, 3)).to_end()
    assert run.of_users(story.keys) == expected.of_users(story.keys)
    assert {key: row for key, row in _states(run).items() if key not in story.keys} == {
        key: row for key, row in _states(expected).items() if key not in story.keys
    }
    refused = {refusal.record.offset: refusal for refusal in run.refusals if refusal.record.offset >= 0}
    assert refused.keys() == story.poison.keys()
    assert all(refusal.code == "poison" for refusal in run.refusals)
    assert {refusal.record.key for refusal in run.refusals if refusal.record.offset < 0} <= story.keys


def _states(run: Run) -> dict[bytes, bytes]:
    """Return the states with their timers, without versions."""
    return {key: row[8:] for key, row in run.rows.stored.items()}


def test_a_dead_letter_names_the_exception_and_its_stack() -> None:
    runs = [Run(_records([0, 1, 0, 1], 1), Poisoned({offset: "process"})).to_end() for offset in (1, 2)]
    messages = [run.refusals[0].message for run in runs]
    assert messages[0] == messages[1]
    assert messages[0].startswith("ZeroDivisionError: division by zero (stack ")
    [letter] = runs[0].refusals
    assert (letter.record.key, letter.record.offset, letter.record.raw) == (b"default/u1", 1, event(1, 60_000))


def test_the_first_failure_alone_refuses_nothing() -> None:
    run = Run(_records([0, 1, 2], 1), Poisoned({1: "process"}))
    assert run.collect() is None
    run.processor.poison = {}
    assert run.to_end().refusals == []
    assert run.failures.seen == [0]


def test_the_first_failure_is_remembered_over_a_restart() -> None:
    run = Run(_records([0, 1, 2], 1), Poisoned({1: "process"}))
    assert run.collect() is None
    run.start()
    assert run.collect() is None
    assert run.task._bisection.searching


@pytest.mark.parametrize("minutes", [1, 50])
def test_a_failure_of_the_world_ends_the_worker_and_refuses_nothing(minutes: int) -> None:
    run = Run(_records([0, 1, 2], minutes), Poisoned({1: "world"}))
    for _ in range(4):
        with pytest.raises(OSError, match="no space left"):
            run.to_end()
        run.start()
    assert (run.refusals, run.failures.seen) == ([], [])
    run.processor.poison = {}
    run.start()
    assert len(run.to_end().outputs) >= 3


def test_a_registry_away_is_no_failure_of_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run([], Poisoned({}))

    def away(*_: object) -> Decoded:
        raise RegistryUnavailable("away")

    monkeypatch.setattr(run.processor, "decode", away)
    run.task.note_fetch({"in": 1}, {})
    with pytest.raises(RegistryUnavailable):
        run.task.receive("in", _records([0], 1), Arrival(0))


def test_a_state_that_cannot_be_decoded_refuses_no_record() -> None:
    """A newer version wrote it: every record of every user would be refused."""
    run = Run(_records([0, 0, 0], 1), Poisoned({}), Limits(1, 1, 1))
    step = run.collect()
    assert step is not None
    run.commit(step)
    run.rows.stored[b"default/u0"] = run.rows.stored[b"default/u0"][:16] + b"\xc1"
    with pytest.raises(StateUnreadable, match="default/u0"):
        run.to_end()
    assert run.refusals == []


def test_what_fails_without_any_record_refuses_no_record() -> None:
    run = Run(_records([0, 1, 2], 1), Poisoned({}))

    def broken(*_: object) -> None:
        raise ZeroDivisionError("a defect of the hook")

    object.__setattr__(run.service, "on_stream_time", broken)
    with pytest.raises(ZeroDivisionError, match="of the hook"):
        run.to_end()
    assert run.refusals == []


def test_a_timer_that_cannot_be_fired_is_postponed_by_a_day_and_fires_then() -> None:
    records = [*_records([0, 1], 1), ReadRecord("in", 0, 2, 0, b"default/u1", event(2, 5 * HOUR_MS), ())]
    run = Run(records, Poisoned({}, frozenset({b"default/u0"}))).to_end()
    [letter] = run.refusals
    assert (letter.record.topic, letter.record.key, letter.record.offset) == ("(timer)", b"default/u0", -1)
    assert letter.message.startswith("KeyError: b'default/u0'")
    due = row_due(run.rows.stored[b"default/u0"])
    assert due is not None
    assert due_ms(due) == 5 * HOUR_MS - 1 + POSTPONED_MS
    run.processor.keys = frozenset()
    run.records = [*records, ReadRecord("in", 0, 3, 0, b"default/u1", event(3, 40 * HOUR_MS), ())]
    run.start()
    assert run.to_end().of_users()[b"default/u0"] == [b"1", b"quiet since 0"]


def test_a_timer_that_was_found_is_searched_again_after_an_abort_because_another_may_be_first() -> None:
    records = [*_records([0, 1], 1), ReadRecord("in", 0, 2, 0, b"default/u2", event(2, 5 * HOUR_MS), ())]
    run = Run(records, Poisoned({}, frozenset({b"default/u1"})))
    while run.task._unfireable is None:
        step = run.collect()
        if step is not None:
            run.commit(step)
    run.task.roll_back([])
    run.rows.stored[b"default/u0"] = run.rows.stored[b"default/u0"][:8] + due_bytes(1) + run.rows.stored[b"default/u0"][16:]
    assert {refusal.record.key for refusal in run.to_end().refusals} == {b"default/u1"}


def test_an_output_of_a_timer_that_the_broker_refuses_postpones_that_timer() -> None:
    records = [*_records([0, 1], 1), ReadRecord("in", 0, 2, 0, b"default/u2", event(2, 5 * HOUR_MS), ())]
    run = Run(records, Poisoned({}))
    fire = run.processor.fire

    def too_large(key: bytes, unit: Unit[Counted]) -> None:
        fire(key, unit)
        if key == b"default/u1":
            unit.emit("out", key, b"too large", 0, [])

    run.processor.fire = too_large  # type: ignore[method-assign]
    run.to_end()
    assert [(letter.record.topic, letter.record.key) for letter in run.refusals] == [("(timer)", b"default/u1")]
    assert run.of_users() == {b"default/u0": [b"1", b"quiet since 0"], b"default/u1": [b"1"], b"default/u2": [b"1"]}


def _raises_for_user_7(run: Run) -> None:
    def switch(key: bytes, state: Counted, unit: Unit[Counted]) -> None:
        if key == b"default/u7":
            raise LookupError(key)
        Counter.switch(run.processor, key, state, unit)

    run.processor.switch = switch  # type: ignore[method-assign]


def _cannot_encode_user_7(run: Run) -> None:
    switched: list[Counted] = []

    def switch(key: bytes, state: Counted, unit: Unit[Counted]) -> None:
        if key == b"default/u7":
            switched.append(state)
        Counter.switch(run.processor, key, state, unit)

    def encode_state(state: Counted) -> bytes:
        if any(state is one for one in switched):
            raise OverflowError("the state has no bytes")
        return Counter.encode_state(run.processor, state)

    run.processor.switch = switch  # type: ignore[method-assign]
    run.processor.encode_state = encode_state  # type: ignore[method-assign]


@pytest.mark.parametrize("spoil", [_raises_for_user_7, _cannot_encode_user_7])
@pytest.mark.parametrize("slice_keys", [8, 100])
def test_a_key_that_cannot_be_switched_stays_as_it_is_and_the_others_are_switched(
    spoil: Callable[[Run], None], slice_keys: int
) -> None:
    run = Run(_records(list(range(20)), 0), Poisoned({}), Limits(100, 8, 8)).to_end()
    released = False

    def switched_prefixes(partition: int) -> None:
        assert not released

    def after_switch(unit: Unit[Counted]) -> None:
        nonlocal released
        released = True

    spoil(run)
    run.processor.switched_prefixes = switched_prefixes  # type: ignore[method-assign]
    run.processor.after_switch = after_switch  # type: ignore[method-assign]
    run.processor.plan = b"v2"
    run.batches = Batches(Limits(100, slice_keys, 8), lambda: b"v2")
    run.batches.adopt([run.task], 0.0)
    run.task.fold.begin_switch(MemoryHistory(0, run.meta, []))
    for _ in range(100):
        if run.meta.plan == b"v2":
            break
        step = run.collect()
        if step is not None:
            run.commit(step)
    assert released
    states = {key: run.processor.decode_state(row[16:]).plan for key, row in run.rows.stored.items()}
    assert states == {b"default/u%d" % user: "" if user == 7 else "v2" for user in range(20)}
    assert [(letter.record.topic, letter.record.key) for letter in run.refusals] == [("(definition)", b"default/u7")]


def test_a_store_remembers_the_position_of_the_last_failure(tmp_path: Path) -> None:
    memory = store_memory(8 << 20, 8 << 20)
    store = TaskStore(tmp_path / "0", memory)
    assert StoredFailures(0, store, Failpoints(None)).failed_at() is None
    StoredFailures(0, store, Failpoints(None)).failed(7, ValueError("once"))
    store.close()
    reopened = TaskStore(tmp_path / "0", memory)
    assert StoredFailures(0, reopened, Failpoints(None)).failed_at() == 7
    reopened.close()
