"""Adapter for tests: runs a service's processor without a broker, on the same fold and with the same rows as a worker.

task = MemoryTask(service)
task.feed("ingest.track", b"default/u1", codec.encode({...}))
task.advance(parse_instant("1997-06-30"))
assert [output.topic for output in task.take_outputs()] == ["events.behaviour"]
task = task.restart()  # only the bytes of the states are kept
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, NamedTuple

from starling_common.headers import Headers
from starling_stream.fold.memory import MemoryRows
from starling_stream.fold.task import decode_record
from starling_stream.fold.task_fold import TaskFold
from starling_stream.model.meta import TaskMeta
from starling_stream.model.ports import Refusal, Sealed
from starling_stream.model.processor import Inbound, Output, S, Service
from starling_stream.model.records import ReadRecord, all_topics
from starling_stream.model.rows import due_ms as due_of_bytes
from starling_stream.model.rows import row_due


class Fed(NamedTuple):
    """One record for `MemoryTask.feed_all`. `timestamp_ms` is the broker's; it only counts when the value cannot be decoded."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = []
    timestamp_ms: int = 0


class MemoryHistory:
    """The records fed so far, which a switch to a new plan reads."""

    def __init__(self, partition: int, meta: TaskMeta, records: Sequence[Inbound]) -> None:
        """`records`: those processed, and those of topics that are no inputs."""
        self.partition = partition
        self.stream_time_ms = meta.stream_time_ms
        self.applied_plan = meta.plan
        self._records = records

    def records(self, topic: str, first: int = 0, until: int | None = None) -> Iterable[Inbound]:
        """Return the decodable records of that topic; of an input, those that the task has processed."""
        end = math.inf if until is None else until
        return [record for record in self._records if record.topic == topic and first <= record.offset < end]


class MemoryTask(Generic[S]):
    """One task of a service. Fed records are decoded and folded, and due timers fired, before the call returns.

    `outputs` and `refusals` collect what committed units wrote, in order, until taken.
    """

    def __init__(
        self, service: Service[S], partition: int = 0, *, rows: Mapping[bytes, bytes] | None = None, meta: TaskMeta | None = None
    ) -> None:
        self.service = service
        self.partition = partition
        self.outputs: list[Output] = []
        self.refusals: list[Refusal] = []
        self._rows = MemoryRows(rows)
        self._fold = TaskFold(service, partition, meta or TaskMeta())
        self._offsets = dict.fromkeys(all_topics(service), 0)
        self._processed: list[Inbound] = []
        self._aside: list[Inbound] = []

    @property
    def stream_time_ms(self) -> int:
        """Return the task's stream time."""
        return self._fold.meta.stream_time_ms

    @property
    def plan(self) -> bytes:
        """Return the plan that the task was last switched to."""
        return self._fold.meta.plan

    def feed(self, topic: str, key: bytes | None, value: bytes | None, headers: Headers | None = None) -> None:
        """Process one record as a unit of work."""
        self.feed_all([Fed(topic, key, value, headers or [])])

    def feed_all(self, records: Iterable[Fed]) -> None:
        """Process records as one unit of work, in the order given: a worker's merge has ordered them before.

        Raises: KeyError for a topic that the service does not read.
        """
        inbound = [self._inbound(record) for record in records]
        self.settle()
        self._commit(self._fold.step(inbound, self._rows))
        self._processed += inbound
        self.settle()

    def put_aside(self, records: Iterable[Fed]) -> None:
        """Add records of topics that are no inputs; only a `History` returns them."""
        for record in records:
            self._offsets.setdefault(record.topic, 0)
            self._aside.append(self._inbound(record))

    def positions(self) -> dict[str, int]:
        """Return topic -> the offset after its last record."""
        return dict(self._offsets)

    def advance(self, instant_ms: int) -> None:
        """Move stream time to that instant under either clock, and fire all timers due up to and including it."""
        self.settle()
        self._commit(self._fold.step((), self._rows, instant_ms))
        self.settle()

    def settle(self) -> None:
        """Switch to the processor's plan if it changed, and fire all due timers."""
        plan = self.service.processor.adopt_plan()
        if plan != self.plan:
            self._switch(plan)
        while self._rows.due(self._fold.due_until(), 1):
            self._commit(self._fold.step((), self._rows))

    def take_outputs(self, topic: str | None = None) -> list[Output]:
        """Return the outputs so far, of one topic or of all, and forget them."""
        taken = [output for output in self.outputs if topic in {None, output.topic}]
        self.outputs = [output for output in self.outputs if topic not in {None, output.topic}]
        return taken

    def state(self, key: bytes) -> S | None:
        """Return the key's state, decoded from its bytes."""
        row = self._rows.stored.get(key, b"")
        return self.service.processor.decode_state(row[16:]) if len(row) >= 16 else None

    def states(self) -> dict[bytes, S]:
        """Return every state, decoded from its bytes."""
        found = {key: self.state(key) for key in sorted(self._rows.stored)}
        return {key: state for key, state in found.items() if state is not None}

    def due_ms(self, key: bytes) -> int | None:
        """Return the instant of the key's timer."""
        due = row_due(self._rows.stored.get(key))
        return None if due is None else due_of_bytes(due)

    def restart(self, service: Service[S] | None = None) -> "MemoryTask[S]":
        """Return the task as another worker would restore it: from the committed bytes, with nothing in memory.

        `service`: another version of it, such as one with a newer format of its states. The past records stay readable.
        """
        taken_over = MemoryTask(service or self.service, self.partition, rows=self._rows.stored, meta=self._fold.meta)
        taken_over._offsets = dict(self._offsets)
        taken_over._processed, taken_over._aside = list(self._processed), list(self._aside)
        return taken_over

    def _inbound(self, record: Fed) -> Inbound:
        offset = self._offsets[record.topic]
        self._offsets[record.topic] = offset + 1
        headers = [(name, value.encode() if isinstance(value, str) else value) for name, value in record.headers]
        read = ReadRecord(record.topic, self.partition, offset, record.timestamp_ms, record.key, record.value, headers)
        return decode_record(self.service, read.topic, read.partition, read)

    def history(self) -> MemoryHistory:
        """Return the history that the next switch reads."""
        return MemoryHistory(self.partition, self._fold.meta, [*self._processed, *self._aside])

    def _switch(self, plan: bytes) -> None:
        self._fold.begin_switch(self.history())
        while self._fold.switching:
            self._commit(self._fold.switch_slice(plan, self._rows, 100))

    def _commit(self, sealed: Sealed) -> None:
        self._rows.apply(sealed.changes)
        self.outputs += [*sealed.outputs, *sealed.sent]
        self.refusals += sealed.refusals
