"""Pure core: the protocol of a stateful service, and the types that it works with.

A service is a `Processor`. The stream layer does everything else: the assignment of partitions, the order of records, the storage
of states, and the transactions over outputs, changelog and offsets.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from starling_common.headers import Headers
from starling_common.settings import Clock

S = TypeVar("S")


class Inbound(NamedTuple):
    """One decoded record of an input topic.

    `received_at` is in microseconds and orders the merge; `event_time_ms` moves stream time under the event clock (None: the record
    does not move it); `raw` is the value as read, for dead letters. `previous_order`: the `received_at` of the record before it
    in the chain of ordered topics, 0 without one; None for other topics.
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
    previous_order: int | None = None


class Decoded(NamedTuple):
    """The result of `Processor.decode`. `key`: that of the state, if it is not the record's own key.

    For a record with an order, `received_at` is its order and `previous_order` that of the record before it.
    """

    value: Any
    received_at: int
    event_time_ms: int | None
    key: bytes | None = None
    previous_order: int | None = None


class Output(NamedTuple):
    """A record to write. `received_at` in microseconds becomes its timestamp."""

    topic: str
    key: bytes
    value: bytes
    received_at: int
    headers: Headers


class Unit(Protocol[S]):
    """A unit of work: states read and written, records emitted. All of it is committed, or nothing.

    Keys are those of the records (`workspace/id`). A state that was read may be changed in place, and must then be put: changes
    without a put are not stored. `due_ms` is the next instant at which the key's timer fires, or None.
    """

    partition: int
    plan: bytes
    """The plan in force during a switch; otherwise the plan of the task's last switch."""
    stream_time_ms: int
    """The task's stream time; in `process`, after the current record has moved it."""

    def get(self, key: bytes) -> S | None:
        """Return the key's state as this unit has left it; None if it has none."""

    def put(self, key: bytes, state: S, due_ms: int | None) -> None:
        """Store the state and its next timer when the unit commits."""

    def delete(self, key: bytes) -> None:
        """Delete the state and its timer when the unit commits."""

    def emit(self, topic: str, key: bytes, value: bytes, received_at: int, headers: Headers) -> None:
        """Write a record to the partition of the same number of `topic` (or to its only one).

        `received_at` (microseconds) becomes the record's timestamp. With an empty `key` the record has none.
        """

    def stamp(self, received_at: int) -> tuple[int, int]:
        """Return the order of the next output, and that of the output before it, of all that the task has stamped.

        Orders strictly increase over all units: the order is `received_at`, unless an earlier output has that
        instant or a later one.
        """

    def send(self, output: Output) -> None:
        """Write a record to the partition of the record's key, which may be the input of another task."""

    def refuse(self, record: Inbound, code: str, message: str) -> None:
        """Send a record to `<stage>.dlq` with its reason."""


class Processor(Protocol[S]):
    """A stateful service. One task at a time calls its methods; they do not wait and use no network.

    Refuse bad data with `Unit.refuse`. An exception discards the unit. When it is repeated, smaller units find the record, timer or
    key, which becomes a dead letter (`poison`). A processor must therefore keep nothing of a unit outside of the states.
    """

    def decode(self, topic: str, value: bytes) -> Decoded:
        """Return the decoded value. Raises: DecodeError; the record is then sent to the dead-letter topic."""

    def encode_state(self, state: S) -> bytes:
        """Return the bytes of a state; they begin with a format version."""

    def decode_state(self, data: bytes) -> S:
        """Return the state of bytes in this format or an older one."""

    def process(self, record: Inbound, unit: Unit[S]) -> None:
        """Fold one record into its key's state and emit the outputs."""

    def fire(self, key: bytes, unit: Unit[S]) -> None:
        """Handle everything due at the key up to and including `unit.stream_time_ms`, in order. Must `put` a later due instant.

        Here `unit.stream_time_ms` is the instant up to which timers may fire: just before the task's stream time, unless that
        instant is over.
        """

    def adopt_plan(self) -> bytes:
        """Take over external changes, such as definitions that another thread reads, and return the name of the plan in force.

        Called between units, never within one. Each task stores the name that it was last switched to. When the names differ, the
        task is switched; until then it processes records under its own plan, if `has_plan`. b"" when the processor depends on its
        inputs alone.
        """

    def has_plan(self, plan: bytes) -> bool:
        """Return whether units of that plan can be processed. The plan in force can, and the plan before it."""

    def before_switch(self, history: "History") -> None:
        """Prepare a switch. Called once in each task before its keys are switched; may read the task's past records."""

    def switched_prefixes(self, partition: int) -> Sequence[bytes] | None:
        """Return the prefixes, ascending, of the keys that the prepared switch of the task concerns; None for all keys.

        Each prefix ends with `/`, as workspaces do, so that no two of them have a key in common.
        """

    def switch(self, key: bytes, state: S, unit: Unit[S]) -> None:
        """Adapt one key's state to the plan in force. Called for every such key of the task; must be safe to repeat."""

    def after_switch(self, unit: Unit[S]) -> None:
        """Complete a switch. Called once in each task, in the unit that switches its last keys.

        The states of the unit are encoded: the method may emit and refuse, but not put or delete.
        """


class WithoutPlan(Generic[S]):
    """Base class of a `Processor` without plans: it depends on its inputs alone."""

    def adopt_plan(self) -> bytes:
        """Return the empty name."""
        return b""

    def has_plan(self, plan: bytes) -> bool:
        """Return whether the name is empty."""
        return plan == b""

    def before_switch(self, history: "History") -> None:
        """Do nothing: a processor without definitions has no plan to switch."""

    def switched_prefixes(self, partition: int) -> Sequence[bytes] | None:  # noqa: ARG002 - as in `Processor`
        """Return None: a processor without definitions has no plan to switch."""
        return None

    def switch(self, key: bytes, state: S, unit: Unit[S]) -> None:
        """Do nothing: a processor without definitions has no plan to switch."""

    def after_switch(self, unit: Unit[S]) -> None:
        """Do nothing: a processor without definitions has no plan to switch."""


class History(Protocol):
    """The past of a task's inputs, up to the records that it has processed."""

    partition: int
    stream_time_ms: int
    applied_plan: bytes
    """The plan that the task was last switched to; b"" if there was none."""

    def records(self, topic: str, first: int = 0, until: int | None = None) -> Iterable[Inbound]:
        """Return the topic's records in the task's partition, from `first` (or the first retained offset) to `until`, exclusive.

        `until` None: the task's position, for an input. Records that cannot be decoded are omitted.
        """


@dataclass(frozen=True, slots=True)
class Service(Generic[S]):
    """A processor with its inputs and outputs.

    `stage` names the consumer group `starling-<stage>`, the topic `<stage>-state-changelog` and `<stage>.dlq`. `inputs` are
    co-partitioned. `hold_ms`: how long a record waits for older records of the other topics (50 after the edge, 20 in later
    stages). `clock_topics`: inputs whose records only move stream time; `process` is not called for them. `bulk_topics`: inputs
    with bursts of records; they are read in slices, so that the other inputs do not wait for a whole burst.
    `sourced`: inputs whose producers publish low watermarks (`ingest.watermarks`); records are then released by these, and
    `hold_ms` only counts while no producer is live. `ordered`: inputs whose records one task of an earlier stage has stamped;
    they are released in that order.
    `time_topic`: the only clock topic, by which alone stream time goes, under either clock: neither other records nor the wall
    clock move it. `Decoded.event_time_ms` of its records is the instant, up to and including which timers fire. A record of it is
    released after all records that were in the other inputs when it became visible. Without `sourced`.

    Raises: ValueError for another clock topic, or sourced inputs, beside a `time_topic`.
    """

    stage: str
    inputs: tuple[str, ...]
    processor: Processor[S]
    hold_ms: int
    clock: Clock
    clock_topics: tuple[str, ...] = ()
    bulk_topics: tuple[str, ...] = ()
    sourced: tuple[str, ...] = ()
    ordered: tuple[str, ...] = ()
    on_stream_time: Callable[[int, int, "Unit[S]"], None] | None = field(default=None)
    """Called with (partition, stream time, unit) once a unit, after its records and timers; may only emit, such as progress."""
    time_topic: str | None = None
    on_instant_over: Callable[[int, int, "Unit[S]"], None] | None = field(default=None)
    """Called with (instant, received_at, unit) when all timers up to the instant have fired, and no later output is caused at or
    before it; may only emit.

    The instants (ms) of a partition strictly increase, also after a restart. A call follows the one before after 200 ms at the
    earliest, and by a second under an idle wall clock. `received_at` (µs) is the greatest one of the task's records and outputs.
    """

    def __post_init__(self) -> None:
        """Add the `time_topic` to the clock topics."""
        if self.time_topic is None:
            return
        if self.sourced or set(self.clock_topics) - {self.time_topic}:
            raise ValueError(f"{self.stage}: {self.time_topic} moves stream time alone: no other clock topic, no sourced inputs")
        object.__setattr__(self, "clock_topics", (self.time_topic,))
