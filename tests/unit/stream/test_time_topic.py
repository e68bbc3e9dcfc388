"""A service whose stream time goes by one clock topic alone, and the order in which its records are released."""

import re
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starling_common.settings import Clock
from starling_stream.fold.memory import MemoryRows
from starling_stream.fold.merge import Arrival
from starling_stream.fold.task import Task
from starling_stream.fold.task_fold import TaskFold
from starling_stream.model.meta import TaskMeta
from starling_stream.model.processor import Service
from starling_stream.model.records import ReadRecord
from starling_stream.testing import Fed, MemoryTask
from tests.unit.stream.counting import HOUR_MS, Counted, counting, event

NOW: Final = 10**15
LATER: Final = NOW + 10**9
HALF_HOUR_MS: Final = HOUR_MS // 2


def timed(clock: Clock = Clock.EVENT, inputs: tuple[str, ...] = ("in",)) -> Service[Counted]:
    return counting(clock, inputs=inputs, clock_topics=(), time_topic="clock")


class Model:
    """The counter by its definition. Stream time is the greatest instant of the clock records so far."""

    def __init__(self) -> None:
        self.time_ms = 0
        self.totals: dict[bytes, int] = {}
        self.last_ms: dict[bytes, int] = {}
        self.outputs: list[bytes] = []

    def unit(self, records: list[Fed]) -> None:
        for topic, key, value, *_ in records:
            assert value is not None
            if topic == "clock":
                self.time_ms = max(self.time_ms, int(re.findall(rb'"at_ms":(\d+)', value)[0]))
            else:
                assert key is not None
                self.totals[key] = self.totals.get(key, 0) + 1
                self.last_ms[key] = self.time_ms
                self.outputs.append(b"%d" % self.totals[key])
        quiet = sorted((at + HOUR_MS, key) for key, at in self.last_ms.items() if at + HOUR_MS <= self.time_ms)
        for due_ms, key in quiet:
            self.outputs.append(b"quiet since %d" % (due_ms - HOUR_MS))
            del self.last_ms[key]


others = st.builds(
    lambda user, received_at, at_ms: Fed("in", b"default/%d" % user, event(received_at, at_ms)),
    st.integers(0, 3),
    st.integers(0, 9 * HOUR_MS * 1000),
    st.integers(0, 9 * HOUR_MS),
)
clocks = st.builds(
    lambda received_at, halves: Fed("clock", None, event(received_at, halves * HALF_HOUR_MS)),
    st.integers(0, 9 * HOUR_MS * 1000),
    st.integers(0, 12),
)


@given(st.sampled_from(Clock), st.lists(st.lists(st.one_of(others, clocks), min_size=1, max_size=5), max_size=12), st.data())
def test_only_clock_records_move_stream_time_and_timers_fire_once_it_reaches_them(
    clock: Clock, units: list[list[Fed]], data: st.DataObject
) -> None:
    task, model = MemoryTask(timed(clock)), Model()
    for records in units:
        task.feed_all(records)
        model.unit(records)
        assert task.stream_time_ms == model.time_ms
        if data.draw(st.booleans()):
            written, task = task.outputs, task.restart()
            task.outputs = written
    assert [output.value for output in task.outputs] == model.outputs


def test_a_timer_that_is_put_for_an_instant_of_before_a_restart_fires_with_the_next_unit() -> None:
    """The clock has ended its instant, although it may stay there for a long time."""
    task = MemoryTask(timed())
    task.feed("in", b"default/ada", event(1, 1))
    task.feed("clock", None, event(2, HOUR_MS - 1))
    task = task.restart()
    assert task.take_outputs() == []
    task.feed("clock", None, event(3, HOUR_MS))
    assert [output.value for output in task.take_outputs()] == [b"quiet since 0"]


def test_the_idle_wall_clock_moves_nothing() -> None:
    for service, instant in ((timed(Clock.WALL), None), (counting(Clock.WALL), NOW // 1000 - 20)):
        task = Task(service, 0, 1)
        task.run(MemoryRows(), TaskFold(service, 0, TaskMeta()), {})
        task.note_fetch({}, {"in": (0, 0, 0, 1), "clock": (0, 0, 0, 1)})
        assert task.idle_instant(NOW) == instant


@pytest.mark.parametrize("more", [{"clock_topics": ("other",)}, {"sourced": ("in",)}])
def test_a_time_topic_excludes_other_clocks_and_sources(more: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="counter: clock moves stream time alone"):
        counting(**({"clock_topics": ()} | more), time_topic="clock")  # type: ignore[arg-type]


class Entry(NamedTuple):
    """A record, or a marker of a transaction (None), in the log of one topic. `number`: of its transaction."""

    number: int
    value: bytes | None


class Response(NamedTuple):
    """The content of a topic as the broker found it: up to where it is readable, and its end."""

    readable: int
    end: int


@dataclass
class Log:
    """One topic at the broker, and its reader, whose requests follow one another."""

    entries: list[Entry] = field(default_factory=list)
    open: list[int] = field(default_factory=list)
    """The transactions without a marker here."""
    response: Response = field(default_factory=lambda: Response(0, 0))
    position: int = 0

    def readable(self) -> int:
        """Return the last stable offset."""
        return next((at for at, entry in enumerate(self.entries) if entry.number in self.open), len(self.entries))

    def answer(self) -> None:
        """Let the broker respond to the open request; the response is received later."""
        self.response = Response(self.readable(), len(self.entries))


class World:
    """Topics that a stage writes in transactions, whose markers come topic by topic, and a task that reads them."""

    TOPICS = ("a", "b", "clock")

    def __init__(self) -> None:
        self.logs = {topic: Log() for topic in self.TOPICS}
        service = timed(inputs=("clock", "a", "b"))  # of records with the same `received_at` the clock record is the last one
        self.task = Task(service, 0, 1)
        self.task.run(MemoryRows(), TaskFold(service, 0, TaskMeta()), {})
        self.milliseconds = 1
        self.transactions = 0
        self.latest = 0
        self.released: list[tuple[str, int]] = []
        self.before: dict[int, set[tuple[str, int]]] = {}
        """Offset of a clock record -> the records of its transaction and of those before it."""
        self.written: set[tuple[str, int]] = set()

    def write(self, received: list[tuple[str, int]], *, ends: bool) -> None:
        """Append a transaction without its markers. `ends`: its last record is one of the clock."""
        self.transactions += 1
        for topic, received_at in received:
            self.append(topic, received_at)
        if ends:
            self.before[len(self.logs["clock"].entries)] = set(self.written)
            self.append("clock", self.latest)

    def append(self, topic: str, received_at: int) -> None:
        log = self.logs[topic]
        self.latest = max(self.latest, received_at)
        if topic != "clock":
            self.written.add((topic, len(log.entries)))
        log.entries.append(Entry(self.transactions, event(received_at, self.transactions)))
        if self.transactions not in log.open:
            log.open.append(self.transactions)

    def mark(self, topic: str) -> None:
        """Write the marker of the first open transaction of a topic."""
        log = self.logs[topic]
        if log.open:
            log.entries.append(Entry(log.open.pop(0), None))

    def receive(self, topic: str) -> None:
        """Receive the response to the request, and send the next one."""
        log = self.logs[topic]
        self.milliseconds += 2
        readable, end = log.response
        found = [(at, log.entries[at].value) for at in range(log.position, max(readable, log.position))]
        values = [ReadRecord(topic, 0, at, 0, b"default/u", value, ()) for at, value in found if value is not None]
        log.position = max(readable, log.position)
        self.task.note_fetch({topic: 1} if values else {}, {topic: (log.position, readable, end, self.milliseconds)})
        if values:
            self.task.receive(topic, values, Arrival(0, self.milliseconds))
        log.answer()

    def take(self, now: int = LATER) -> None:
        for record in self.task.merge.take(100, now):
            if record.topic == "clock":
                missing = self.before[record.offset] - set(self.released)
                assert not missing, f"the clock record {record.offset} was released before {missing}"
            self.released.append((record.topic, record.offset))


actions = st.one_of(
    st.tuples(st.just("write"), st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 50)), max_size=3), st.booleans()),
    st.tuples(st.just("mark"), st.sampled_from(World.TOPICS)),
    st.tuples(st.just("answer"), st.sampled_from(World.TOPICS)),
    st.tuples(st.just("receive"), st.sampled_from(World.TOPICS)),
    st.just(("take",)),
)


@settings(max_examples=300)
@given(st.lists(actions, max_size=60))
def test_a_clock_record_follows_what_was_written_before_it_however_its_transaction_becomes_visible(
    steps: list[tuple[object, ...]],
) -> None:
    world = World()
    for step in steps:
        match step:
            case ("write", list(received), bool(ends)):
                world.write(received, ends=ends)
            case ("mark", str(topic)):
                world.mark(topic)
            case ("answer", str(topic)):
                world.logs[topic].answer()
            case ("receive", str(topic)):
                world.receive(topic)
        world.take()
    for topic in World.TOPICS:
        while world.logs[topic].open:
            world.mark(topic)
    for _ in range(4):
        for topic in World.TOPICS:
            world.receive(topic)
        world.take()
    clocks = {("clock", offset) for offset in world.before}
    assert set(world.released) == world.written | clocks, "some records were never released"


def test_records_pass_a_clock_record_that_waits() -> None:
    world = World()
    world.write([("a", 10)], ends=True)
    for topic in ("a", "b", "clock"):
        world.mark(topic)
        world.logs[topic].answer()
        world.receive(topic)
    world.take()
    assert world.released == [("a", 0)]
    world.write([("a", 20)], ends=False)
    world.mark("a")
    for topic in ("a", "a", "b"):
        world.receive(topic)
    world.take()
    assert world.released == [("a", 0), ("a", 2)]  # `b` may still contain an invisible record of the first transaction
    world.receive("b")
    world.take()
    assert world.released == [("a", 0), ("a", 2), ("clock", 0)]


def test_a_backlog_is_read_in_the_order_of_its_clock() -> None:
    world = World()
    for second in range(3):
        world.write([("a", second * 10), ("b", second * 10 + 1)], ends=True)
    world.write([("a", 90), ("b", 90)], ends=False)
    for topic in World.TOPICS:
        while world.logs[topic].open:
            world.mark(topic)
        world.logs[topic].answer()
    for topic in World.TOPICS:
        world.receive(topic)
    world.take()
    order = [topic for topic, _ in world.released]
    assert order[: 3 * 3] == ["a", "b", "clock"] * 3
