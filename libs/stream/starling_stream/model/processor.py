"""Pure core: what a stateful service says about itself, and what it is given to work with.

A service is a `Processor`. Everything else (which partitions it has, in which order records come, when state is stored,
how outputs, changelog and offsets become one transaction) is the stream layer's.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from starling_common.headers import Headers
from starling_common.settings import Clock

S = TypeVar("S")


class Inbound(NamedTuple):
    """One decoded record of an input topic.

    `received_at` is in microseconds and orders the merge; `event_time_ms` moves stream time under the event clock
    (None: this record does not move it); `raw` is the value as read, for dead letters.
    """

    topic: str
    partition: int
    offset: int
    key: bytes
    value: Any
    received_at: int
    event_time_ms: int | None
    headers: Sequence[tuple[str, bytes | None]]
    raw: bytes


class Decoded(NamedTuple):
    """What `Processor.decode` makes of a value. `key`: of the state that it goes to, where that is not the record's own."""

    value: Any
    received_at: int
    event_time_ms: int | None
    key: bytes | None = None


class Output(NamedTuple):
    """A record to be written. `received_at` in microseconds becomes its timestamp."""

    topic: str
    key: bytes
    value: bytes
    received_at: int
    headers: Headers


class Unit(Protocol[S]):
    """A unit of work: states read and written, records emitted. All of it happens, or none of it.

    Keys are those of the records (`workspace/id`). A state that was read may be changed in place, and must then be
    put: what is not put is not stored. `due_ms` is the next instant at which the key wants to be fired, or None.
    """

    partition: int
    stream_time_ms: int
    """The task's stream time. For `process`: as moved on by the record at hand."""

    def get(self, key: bytes) -> S | None:
        """The key's state as of now in this unit; None when it has none."""

    def put(self, key: bytes, state: S, due_ms: int | None) -> None:
        """Store the state and its next instant when the unit commits."""

    def delete(self, key: bytes) -> None:
        """Forget the key when the unit commits."""

    def emit(self, topic: str, key: bytes, value: bytes, received_at: int, headers: Headers) -> None:
        """Write a record to the partition of the same number of `topic` (or to its only one).

        `received_at` (microseconds) becomes the record's timestamp.
        """

    def send(self, output: Output) -> None:
        """As `emit`, to the partition that the record's key belongs to: it may be another task's input."""

    def refuse(self, record: Inbound, code: str, message: str) -> None:
        """Send a record to `<stage>.dlq` with its reason."""


class Processor(Protocol[S]):
    """A stateful service. All methods are called by one task at a time; they do not wait and touch no network.

    An exception stops the worker with nothing of the unit done: bad data must go to `Unit.refuse`.
    """

    def decode(self, topic: str, value: bytes) -> Decoded:
        """Raises: DecodeError; such a record goes to the dead letters."""

    def encode_state(self, state: S) -> bytes:
        """State to bytes, a version of the format first."""

    def decode_state(self, data: bytes) -> S:
        """The inverse, of this and every older version of the format."""

    def process(self, record: Inbound, unit: Unit[S]) -> None:
        """Fold one record into its key's state and emit what follows."""

    def fire(self, key: bytes, unit: Unit[S]) -> None:
        """The key is due: everything due up to and at `unit.stream_time_ms`, in order. Must `put` a later due instant.

        Here `unit.stream_time_ms` is how far timers may fire: just before the task's stream time, unless that instant is over.
        """

    def adopt_plan(self) -> bytes:
        """Take over whatever changed outside (such as definitions read by another thread), and name the plan now in force.

        Called between units, never within one. Each task keeps the name it was last switched to in its state; when this
        one differs, the task is switched before it processes anything more. b"" when nothing but the inputs matters.
        """

    def before_switch(self, history: "History") -> None:
        """Called once in each task before its keys are switched; may read the task's past records."""

    def switch(self, key: bytes, state: S, unit: Unit[S]) -> None:
        """Bring one key's state under the plan in force; called for every key of the task. Must be safe to repeat."""

    def after_switch(self, unit: Unit[S]) -> None:
        """Called once in each task when all its keys have been switched, in the same unit as the last of them."""


class WithoutPlan(Generic[S]):
    """The part of a `Processor` whose rules never change while it runs: no plan, nothing to switch to. To be inherited."""

    def adopt_plan(self) -> bytes:
        """As `Processor.adopt_plan`: nothing but the inputs matters."""
        return b""

    def before_switch(self, history: "History") -> None:
        """There is no plan to switch to."""

    def switch(self, key: bytes, state: S, unit: Unit[S]) -> None:
        """There is no plan to switch to."""

    def after_switch(self, unit: Unit[S]) -> None:
        """There is no plan to switch to."""


class History(Protocol):
    """The past of a task's inputs, up to the records that it has processed."""

    partition: int
    stream_time_ms: int
    applied_plan: bytes
    """The plan that the task was last switched to; b"" for none yet."""

    def records(self, topic: str, first: int = 0, until: int | None = None) -> Iterable[Inbound]:
        """The records of that topic's same partition, from that offset on (or the first that is left), up to and without `until`.

        `until` None: the task's position, for an input. What cannot be decoded is left out.
        """


@dataclass(frozen=True, slots=True)
class Service(Generic[S]):
    """A processor and its place: what it reads and writes.

    `stage` names the consumer group `starling-<stage>`, the topic `<stage>-state-changelog` and `<stage>.dlq`.
    `inputs` are co-partitioned. `hold_ms`: how long a record waits for its siblings on other topics (50 after the
    edge, 20 later on). `clock_topics`: inputs whose records only move stream time (`process` is not called for them).
    `bulk_topics`: inputs into which somebody may write a great many records at once; they come in slices, so that the
    other inputs never wait for all of them.
    """

    stage: str
    inputs: tuple[str, ...]
    processor: Processor[S]
    hold_ms: int
    clock: Clock
    clock_topics: tuple[str, ...] = ()
    bulk_topics: tuple[str, ...] = ()
    on_stream_time: Callable[[int, int, "Unit[S]"], None] | None = field(default=None)
    """Called with (partition, stream time, unit) once a unit, after its records and timers; may only emit, such as progress."""
