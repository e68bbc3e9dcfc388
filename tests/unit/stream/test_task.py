"""The offsets that a task may commit at any moment, and the content of a batch."""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest

from starling_common.settings import Clock
from starling_stream.fold.arrivals import ArrivalMerge
from starling_stream.fold.batches import Batches, Limits
from starling_stream.fold.memory import MemoryRows
from starling_stream.fold.merge import Arrival
from starling_stream.fold.task import Step, Task, decode_record
from starling_stream.fold.task_fold import TaskFold
from starling_stream.model.errors import BatchMissing
from starling_stream.model.meta import TaskMeta, decode_meta, encode_meta
from starling_stream.model.ports import StateView
from starling_stream.model.processor import Decoded
from starling_stream.model.records import ReadRecord
from starling_stream.model.rows import row_after
from starling_stream.testing import MemoryHistory
from tests.unit.stream.counting import HOUR_MS, Counted, Counter, counting, event

NOW = 10**15
KEY = b"default/u1"


def _task(rows: StateView | None = None, clock: Clock = Clock.EVENT, offsets: dict[str, int] | None = None) -> Task[Counted]:
    service = counting(clock)
    task = Task(service, 0, 1)
    task.run(rows or MemoryRows(), TaskFold(service, 0, TaskMeta()), offsets or {})
    return task


def _records(topic: str, first: int, values: Sequence[bytes]) -> list[ReadRecord]:
    key = None if topic == "clock" else KEY
    return [ReadRecord(topic, 0, first + number, 0, key, value, ()) for number, value in enumerate(values)]


def _feed(task: Task[Counted], topic: str, records: Sequence[ReadRecord], end: int) -> None:
    task.note_fetch({topic: 1}, {topic: (end, end, end, 0)})
    task.receive(topic, records, Arrival(0))


def _batches() -> Batches:
    return Batches(Limits(1000, 10, 3), lambda: b"")


def _step(task: Task[Counted], batches: Batches | None = None) -> Step:
    [step] = (batches or _batches()).collect([task], NOW)
    return step


def test_a_topic_read_to_its_end_commits_beyond_the_markers() -> None:
    task = _task()
    task.note_fetch({}, {"clock": (0, 0, 0, 0)})
    _feed(task, "in", _records("in", 0, [event(1, 1), event(2, 2)]), 3)
    assert _step(task).offsets == {"in": 3}


def test_a_topic_with_a_fetch_in_transit_is_not_at_its_end() -> None:
    task = _task()
    task.note_fetch({}, {"clock": (0, 0, 0, 0)})
    task.note_fetch({"in": 2}, {"in": (9, 9, 9, 0)})
    task.receive("in", _records("in", 0, [event(1, 1)]), Arrival(0))
    assert _step(task).offsets == {"in": 1}
    task.receive("in", _records("in", 1, [event(2, 2)]), Arrival(0))
    assert _step(task).offsets == {"in": 9}


def test_records_before_the_committed_offset_and_repeated_ones_are_dropped() -> None:
    task = _task(offsets={"in": 1})
    task.note_fetch({}, {"clock": (0, 0, 0, 0)})
    _feed(task, "in", _records("in", 0, [event(1, 1), event(2, 2)]), 2)
    _feed(task, "in", _records("in", 0, [event(1, 1), event(2, 2), event(3, 3)]), 3)
    assert [record.offset for record in _step(task).records] == [1, 2]


def test_a_fetch_after_a_missing_one_is_refused() -> None:
    task = _task(offsets={"in": 4})
    task.note_fetch({"in": 1, "clock": 0}, {"in": (7, 7, 7, 0), "clock": (0, 0, 0, 0)})
    task.receive("in", _records("in", 4, [event(1, 1)] * 3), Arrival(0), 3)
    with pytest.raises(BatchMissing, match="in 0: the records after offset 6 up to 8 were fetched and did not reach the task"):
        task.receive("in", _records("in", 9, [event(2, 2)]), Arrival(0), 8)
    task.receive("in", _records("in", 5, [event(1, 1)] * 4), Arrival(0), None)  # read again from further back
    task.receive("in", _records("in", 9, [event(2, 2)]), Arrival(0), 8)
    assert task.merge.size("in") == 6


@pytest.mark.parametrize(("offsets", "unmoved"), [({}, {"in": 7}), ({"clock": 0}, {"clock": 0})])
def test_a_clock_record_is_committed_only_when_all_timers_up_to_it_have_fired(
    offsets: dict[str, int], unmoved: dict[str, int]
) -> None:
    rows, batches = MemoryRows(), _batches()
    task = _task(rows, offsets=offsets)
    others = [ReadRecord("in", 0, number, 0, b"default/%d" % number, event(number, 5), ()) for number in range(7)]
    _feed(task, "in", others, 7)
    task.note_fetch({}, {"clock": (0, 0, 0, 0)})
    committed: list[dict[str, int]] = []

    def turn() -> int:
        step = _step(task, batches)
        assert step.sealed is not None
        rows.apply(step.sealed.changes)
        task.committed(step)
        committed.append(dict(step.offsets))
        return step.sealed.fired

    turn()
    _feed(task, "clock", _records("clock", 0, [event(100, 2 * HOUR_MS)]), 1)
    fired = [turn() for _ in range(3)]
    assert fired == [3, 3, 1]
    assert committed == [{"in": 7}, unmoved, unmoved, {"clock": 1}]


def test_a_unit_that_advances_no_offset_sends_that_of_the_pending_transaction() -> None:
    """Not the committed one: the group's offset would decrease, and a restart would fold the record again."""
    rows, batches = MemoryRows(), _batches()
    task = _task(rows, offsets={"in": 4})
    task.note_fetch({}, {"clock": (0, 0, 0, 0)})
    users = [ReadRecord("in", 0, 4 + number, 0, b"default/%d" % number, event(number, 5), ()) for number in range(7)]
    _feed(task, "in", users, 11)
    first = _step(task, batches)
    assert first.sealed is not None
    assert first.offsets == {"in": 11}
    rows.apply(first.sealed.changes)
    task.committed(first)
    last = ReadRecord("in", 0, 11, 0, b"default/last", event(99, 2 * HOUR_MS), ())
    _feed(task, "in", [last], 12)
    pending = _step(task, batches)
    assert pending.offsets == {"in": 12}
    task.submitted(pending.sealed)
    following = _step(task, batches)
    assert following.sealed is not None
    assert (following.sealed.fired, following.offsets) == (3, {"in": 12})
    task.roll_back([pending, following])
    assert task.unmoved_offset() == {"in": 11}


def test_a_slice_of_a_plan_switch_sends_an_offset() -> None:
    service = counting()
    task = Task(service, 0, 1)
    task.run(MemoryRows(), TaskFold(service, 0, TaskMeta(5, 0, b"v1")), {"in": 3})
    batches = Batches(Limits(100, 10), lambda: b"v2")
    batches.adopt([task], 0.0)
    task.fold.begin_switch(MemoryHistory(0, TaskMeta(), []))
    step = _step(task, batches)
    assert step.sealed is not None
    assert (step.sealed.meta.plan, step.offsets) == (b"v2", {"in": 3})


def test_timers_of_all_tasks_share_a_batch_and_keep_pace_with_many_records() -> None:
    """A burst of timers must not delay records; under load it must not fall behind them either."""
    tasks, rows = [], [MemoryRows(), MemoryRows()]
    for number in range(2):
        service = counting()
        task = Task(service, number, 1)
        task.run(rows[number], TaskFold(service, number, TaskMeta()), {})
        task.note_fetch({"in": 1}, {"clock": (0, 0, 0, 0), "in": (20, 20, 20, 0)})
        users = [ReadRecord("in", number, user, 0, b"default/%d" % user, event(user, 5), ()) for user in range(20)]
        task.receive("in", users, Arrival(0))
        tasks.append(task)
    batches = Batches(Limits(1000, 10, 6), lambda: b"")

    def turn() -> dict[int, int]:
        steps = batches.collect(tasks, NOW)
        for step in steps:
            assert step.sealed is not None
            rows[step.partition].apply(step.sealed.changes)
            tasks[step.partition].committed(step)
        return {step.partition: step.sealed.fired for step in steps if step.sealed is not None}

    assert turn() == {0: 0, 1: 0}
    later = [ReadRecord("in", 0, 20 + i, 0, b"default/new%d" % i, event(50 + i, 3 * HOUR_MS), ()) for i in range(10)]
    tasks[0].note_fetch({"in": 1}, {"in": (30, 30, 30, 0)})
    tasks[0].receive("in", later, Arrival(0))
    tasks[1].note_fetch({"in": 1}, {"in": (21, 21, 21, 0)})
    tasks[1].receive("in", [ReadRecord("in", 1, 20, 0, b"default/new", event(50, 3 * HOUR_MS), ())], Arrival(0))
    assert turn() == {0: 10, 1: 3}
    assert turn() == {0: 3, 1: 3}


def test_aborted_steps_are_repeated_from_the_committed_state() -> None:
    rows, batches = MemoryRows(), _batches()
    task = _task(rows)
    task.note_fetch({}, {"clock": (0, 0, 0, 0)})
    _feed(task, "in", _records("in", 0, [event(1, 10)]), 1)
    first = _step(task, batches)
    task.submitted(first.sealed)
    _feed(task, "in", _records("in", 1, [event(2, 20)]), 2)
    second = _step(task, batches)
    assert second.sealed is not None
    assert second.sealed.outputs[0].value == b"2"
    task.roll_back([first, second])
    again = _step(task, batches)
    assert again.sealed is not None
    assert [output.value for output in again.sealed.outputs] == [b"1", b"2"]
    assert again.offsets == {"in": 2}
    assert again.sealed.meta == TaskMeta(1, 20, b"")


def test_the_next_unit_reads_the_changes_of_the_pending_one() -> None:
    task = _task()
    task.note_fetch({}, {"clock": (0, 0, 0, 0)})
    _feed(task, "in", _records("in", 0, [event(1, 10)]), 1)
    first = _step(task)
    task.submitted(first.sealed)
    _feed(task, "clock", _records("clock", 0, [event(2, 10 + HOUR_MS)]), 1)
    second = _step(task)
    assert second.sealed is not None
    assert [output.value for output in second.sealed.outputs] == [b"quiet since 10"]


def test_an_idle_task_under_the_wall_clock_follows_it_and_fires_what_is_due() -> None:
    rows, batches = MemoryRows(), _batches()
    task = _task(rows, Clock.WALL)
    task.note_fetch({}, {"clock": (0, 0, 0, 0)})
    received_at = NOW - HOUR_MS * 1000
    _feed(task, "in", _records("in", 0, [event(received_at)]), 1)
    step = _step(task, batches)
    assert step.sealed is not None
    rows.apply(step.sealed.changes)
    task.committed(step)
    assert batches.collect([task], NOW) == []
    [later] = batches.collect([task], NOW + 20_000)
    assert later.sealed is not None
    assert (later.sealed.fired, later.sealed.meta.stream_time_ms) == (1, NOW // 1000)


def test_a_batch_is_shared_evenly_and_the_rest_goes_to_tasks_with_more_records() -> None:
    tasks = []
    for number, count in enumerate((100, 2, 2)):
        service = counting()
        task = Task(service, number, 1)
        task.run(MemoryRows(), TaskFold(service, number, TaskMeta()), {})
        task.note_fetch({"in": 1}, {"clock": (0, 0, 0, 0), "in": (count, count, count, 0)})
        records = [ReadRecord("in", number, offset, 0, KEY, event(offset, 1), ()) for offset in range(count)]
        task.receive("in", records, Arrival(0))
        tasks.append(task)
    steps = Batches(Limits(30, 10), lambda: b"").collect(tasks, NOW)
    assert {step.partition: len(step.records) for step in steps} == {0: 26, 1: 2, 2: 2}


def test_batches_grow_slowly_and_shrink_at_once_with_the_outputs_of_a_record() -> None:
    """A transaction with too many outputs takes longer than its timeout: the broker would fence the worker, again and again."""
    service = counting()
    counter = cast("Counter", service.processor)
    rows, task = MemoryRows(), Task(service, 0, 1)
    task.run(rows, TaskFold(service, 0, TaskMeta()), {})
    batches = Batches(Limits(10_000, 10), lambda: b"")
    offset = 0

    def folded(waiting: int) -> int:
        nonlocal offset
        task.note_fetch({}, {"clock": (0, 0, 0, 0), "in": (offset + waiting,) * 3 + (0,)})
        more = [ReadRecord("in", 0, offset + n, 0, b"default/%d" % n, event(offset + n, 1), ()) for n in range(waiting)]
        task.receive("in", more, Arrival(0))
        offset += waiting
        (step,) = batches.collect([task], NOW)
        assert step.sealed is not None
        rows.apply(step.sealed.changes)
        task.committed(step)
        return len(step.records)

    assert [folded(waiting) for waiting in (3_000, 3_000, 3_000)] == [1_000, 2_000, 4_000]
    counter.outputs = 20
    assert folded(3_000) == 5_000  # the outputs of these records are unknown before
    assert [folded(3_000), folded(3_000)] == [2_500, 2_500]
    counter.outputs = 1
    assert [folded(3_000), folded(4_000)] == [2_500, 5_000]


@pytest.mark.parametrize(("waiting", "is_small"), [(0, True), (99, True), (100, False)])
def test_a_batch_is_small_below_the_limit_of_records(waiting: int, is_small: bool) -> None:
    task = _task()
    task.note_fetch({}, {"clock": (0, 0, 0, 0)})
    _feed(task, "in", _records("in", 0, [event(1, 1)] * waiting), waiting)
    assert Batches(Limits(100, 10), lambda: b"").is_small([task]) is is_small


def test_a_batch_with_due_timers_is_not_small() -> None:
    rows, batches = MemoryRows(), _batches()
    task = _task(rows)
    task.note_fetch({}, {"clock": (0, 0, 0, 0)})
    users = [ReadRecord("in", 0, user, 0, b"default/%d" % user, event(user, 5), ()) for user in range(4)]
    _feed(task, "in", users, 4)
    for clock in (_records("clock", 0, [event(100, 2 * HOUR_MS)]), []):
        if clock:
            assert batches.is_small([task])
        step = _step(task, batches)
        assert step.sealed is not None
        rows.apply(step.sealed.changes)
        task.committed(step)
        _feed(task, "clock", clock, 1)
    assert not batches.is_small([task])
    _step(task, batches)
    assert batches.is_small([task])


def test_a_switch_is_no_small_batch() -> None:
    task = _task()
    batches = Batches(Limits(100, 10), lambda: b"v2")
    assert batches.is_small([task])
    batches.adopt([task], 0.0)
    assert batches.is_small([task])  # the past of the task is to be read first, in another thread
    task.fold.begin_switch(MemoryHistory(0, TaskMeta(), []))
    assert not batches.is_small([task])


def test_a_switch_concerns_the_keys_of_the_named_workspaces() -> None:
    service = counting()
    processor = cast("Counter", service.processor)
    processor.plan, processor.prefixes = b"v2", (b"a/", b"c/")
    keys = [b"a-b/1", b"a.b/1", b"a/", b"a/1", b"a/2", b"b/1", b"c/1", b"c0/1"]
    rows = MemoryRows({key: row_after(None, None, service.processor.encode_state(Counted())) or b"" for key in keys})
    fold = TaskFold(service, 0, TaskMeta(5, 0, b"v1"))
    fold.begin_switch(MemoryHistory(0, fold.meta, []))
    switched = []
    while fold.switching:
        sealed = fold.switch_slice(b"v2", rows, 2)
        switched += list(sealed.changes)
    assert switched == [b"a/", b"a/1", b"a/2", b"c/1"]
    assert fold.meta.plan == b"v2"


def test_a_newer_plan_waits_as_long_as_the_last_switch_took() -> None:
    plans = [b"v1"]
    batches = Batches(Limits(100, 10), lambda: plans[0])
    task = _task()
    batches.adopt([task], 100.0)
    batches.adopt([task], 100.0)
    task.fold.reset(TaskMeta(5, 0, b"v1"))  # switched
    plans[0] = b"v2"
    for now, is_behind in ((104.0, False), (107.9, False), (108.0, True)):
        batches.adopt([task], now)
        assert (batches.next_to_switch([task]) is not None) == is_behind


def test_tasks_are_switched_one_at_a_time_and_process_no_record_before() -> None:
    plans = [b"v1"]
    batches = Batches(Limits(100, 10), lambda: plans[0])
    tasks = []
    for number in range(2):
        service = counting()
        task = Task(service, number, 1)
        task.run(MemoryRows(), TaskFold(service, number, TaskMeta(5, 0, b"v0")), {})
        task.note_fetch({"in": 1}, {"clock": (0, 0, 0, 0), "in": (1, 1, 1, 0)})
        task.receive("in", [ReadRecord("in", number, 0, 0, KEY, event(1, 1), ())], Arrival(0))
        tasks.append(task)

    def turn() -> set[tuple[int, int, bytes]]:
        batches.adopt(tasks, 0.0)
        plans[0] = b"v2"
        first = batches.next_to_switch(tasks)
        if first is not None:
            first.fold.begin_switch(MemoryHistory(first.partition, first.fold.meta, []))
        steps = batches.collect(tasks, NOW)
        return {(step.partition, len(step.records), step.sealed.meta.plan) for step in steps if step.sealed is not None}

    assert [turn() for _ in range(5)] == [
        {(0, 0, b"v1")},
        {(0, 1, b"v1"), (1, 0, b"v1")},
        {(0, 0, b"v2")},
        {(0, 0, b"v2"), (1, 0, b"v2")},
        {(1, 1, b"v2")},
    ]


@pytest.mark.parametrize("plan_before", [b"v1", None])
def test_a_task_processes_records_under_its_own_plan_until_its_switch_if_that_plan_is_known(plan_before: bytes | None) -> None:
    tasks = []
    for number in range(2):
        service = counting()
        processor = cast("Counter", service.processor)
        processor.plan, processor.plan_before = b"v2", plan_before
        task = Task(service, number, 1)
        task.run(MemoryRows(), TaskFold(service, number, TaskMeta(5, 0, b"v1")), {})
        task.note_fetch({"in": 1}, {"clock": (0, 0, 0, 0), "in": (2, 2, 2, 0)})
        records = [ReadRecord("in", number, offset, 0, KEY, event(offset + 1, 1), ()) for offset in range(2)]
        task.receive("in", records, Arrival(0))
        tasks.append(task)
    batches = Batches(Limits(2, 10), lambda: b"v2")
    batches.adopt(tasks, 0.0)

    def turn() -> set[tuple[int, int, bytes]]:
        steps = batches.collect(tasks, NOW)
        return {(step.partition, len(step.records), step.sealed.meta.plan) for step in steps if step.sealed is not None}

    assert turn() == (set() if plan_before is None else {(0, 1, b"v1"), (1, 1, b"v1")})
    first = batches.next_to_switch(tasks)
    assert first is tasks[0]
    first.fold.begin_switch(MemoryHistory(first.partition, first.fold.meta, []))
    assert turn() == ({(0, 0, b"v2")} if plan_before is None else {(0, 0, b"v2"), (1, 1, b"v1")})


def test_a_restart_after_a_record_that_overtook_others_processes_each_once() -> None:
    """The group's offset stays before the records that wait; the task's row names the later ones that were processed."""
    service = replace(counting(Clock.EVENT), sourced=("in",))
    records = _records("in", 0, [event(9, 1), event(3, 2), event(20, 3), event(4, 4), event(30, 5)])

    def started(meta: TaskMeta, offsets: dict[str, int], *, receives_first: bool) -> Task[Counted]:
        task = Task(service, 0, 1)
        task.note_fetch({}, {"clock": (0, 0, 0, 0)})
        if receives_first:
            _feed(task, "in", records, 5)
        task.run(MemoryRows(), TaskFold(service, 0, meta), offsets)
        if not receives_first:
            _feed(task, "in", records, 5)
        return task

    def step_below(task: Task[Counted], bound: int) -> Step:
        assert isinstance(task.merge, ArrivalMerge)
        task.merge.note_bound(bound, {"in": 5})
        return _step(task)

    task = started(TaskMeta(), {"in": 0}, receives_first=False)
    first = step_below(task, 5)
    assert [record.offset for record in first.records] == [1, 3]
    assert (task.submitted_offsets(), task.submitted_beyond()) == ({"in": 0}, {"in": [1, 2, 3, 4]})
    assert first.sealed is not None
    stored = first.sealed.meta
    stored = decode_meta(encode_meta(TaskMeta(1, stored.stream_time_ms, b"", {"in": 0}, 0, task.submitted_beyond())))
    for receives_first in (False, True):
        restored = started(stored, {"in": 0}, receives_first=receives_first)
        second = step_below(restored, 25)
        assert [record.offset for record in second.records] == [0, 2]
        assert (second.offsets, restored.submitted_beyond()) == ({"in": 4}, {})
    task.roll_back([first])
    again = step_below(task, 25)
    assert [record.offset for record in again.records] == [1, 3, 0, 2]
    assert (again.offsets, task.submitted_beyond()) == ({"in": 4}, {})


def test_a_restored_task_follows_the_last_order_that_it_processed() -> None:
    service, [read] = counting(Clock.EVENT), _records("in", 0, [event(7, 1)])
    record = decode_record(service, "in", 0, read)._replace(previous_order=5)
    sealed = TaskFold(service, 0, TaskMeta()).step([record], MemoryRows())
    assert sealed.meta.order == 7
    task = Task(service, 0, 1)
    task.run(MemoryRows(), TaskFold(service, 0, sealed.meta), {})
    assert task.merge.follows == 7


MINUTE_MS = 60_000


@pytest.mark.parametrize(
    ("ahead_ms", "ordered", "arrived_ms", "is_refused"),
    [
        (5 * MINUTE_MS, False, 0, False),
        (5 * MINUTE_MS + 1, False, 0, True),
        # The order of a replayed record is far after its arrival, which its timestamp is.
        (5 * MINUTE_MS + 1, True, MINUTE_MS, False),
        (6 * MINUTE_MS + 1, True, MINUTE_MS, True),
        # A reader of the past does not know when a record was appended; the record does not move stream time there.
        (10**9, True, None, False),
    ],
)
def test_a_record_far_ahead_of_its_append_is_refused(
    ahead_ms: int, ordered: bool, arrived_ms: int | None, is_refused: bool
) -> None:
    service = counting(Clock.WALL, ordered=("in",) if ordered else ())
    read = ReadRecord("in", 0, 0, 1_000, KEY, event((1_000 + ahead_ms) * 1000, 1), ())
    record = decode_record(service, "in", 0, read, 0 if arrived_ms is None else (1_000 + arrived_ms) * 1000)
    assert (getattr(record.value, "code", None) == "clock_ahead") == is_refused


@pytest.mark.parametrize(
    ("key", "code"),
    [
        (b"", "missing_key"),
        (b"ada", "bad_key"),
        (b"/ada", "bad_key"),
        (b"acme/", None),  # the stage has its own rule about an empty id
        (b"acme/\xff", "bad_key"),
        (b"acme/" + b"a" * 59_996, "bad_key"),
        (b"acme/" + b"a" * 59_995, None),
        ("acme/ad\u00e4/b".encode(), None),
    ],
)
def test_a_record_whose_key_is_not_workspace_and_id_is_refused_at_once(key: bytes, code: str | None) -> None:
    record = decode_record(counting(), "in", 0, ReadRecord("in", 0, 0, 0, key, event(1, 1), ()))
    assert getattr(record.value, "code", None) == code


class OfAnother(Counter):
    """A service whose records have the state of another key."""

    key = b""

    def decode(self, topic: str, value: bytes) -> Decoded:
        return super().decode(topic, value)._replace(key=self.key)


@pytest.mark.parametrize(("key", "code"), [(b"ada", "bad_key"), (b"acme/" + b"a" * 59_996, "bad_key"), (b"acme/ada", None)])
def test_the_key_of_the_state_is_checked_as_that_of_the_record(key: bytes, code: str | None) -> None:
    processor = OfAnother()
    processor.key = key
    service = replace(counting(), processor=processor)
    record = decode_record(service, "in", 0, ReadRecord("in", 0, 0, 0, KEY, event(1, 1), ()))
    assert getattr(record.value, "code", None) == code
