"""Edge: the segmenter as the stream layer runs it."""

from collections.abc import Callable, Sequence
from typing import Final

from starling_common.failpoints.raising import Raising
from starling_common.kafka.topics import BACKFILL_STATES, BEHAVIOUR, CLOCK, LIST_MEMBERSHIP, PROFILE
from starling_common.settings import Clock
from starling_rules.backfills import Stored
from starling_segmenter.counts import Counts
from starling_segmenter.emitter import Emitter
from starling_segmenter.handlers import HANDLERS, build_handlers
from starling_segmenter.records.clock import ClockPublisher
from starling_segmenter.records.formats import Formats
from starling_segmenter.records.membership import STAGE, TIME
from starling_segmenter.records.progress import ProgressReporter
from starling_segmenter.state.states import State, decode, encode, user_state
from starling_segmenter.switching.definition_log import DefinitionLog
from starling_segmenter.switching.switcher import Switcher
from starling_stream.model.processor import Decoded, History, Inbound, Service, Unit

_HOLD_MS: Final = 20
"""How long a record waits for older ones of lists, deliveries and accounts. Events and profiles have the normalizer's order."""


class Segmenter:
    """A `Processor`: events and profiles in, membership changes out; the state of a key is a `State`."""

    def __init__(
        self,
        formats: Formats,
        log: DefinitionLog,
        counts: Counts,
        clock: Clock,
        now_micros: Callable[[], int],
        armed: Raising | None = None,
    ) -> None:
        """`clock` determines stream time; `now_micros` returns the wall clock. `armed`: the failpoint of the process."""
        self.clock = clock
        self._encode_user = formats.encode_user
        self._formats = formats
        self._counts = counts
        self._emitter = Emitter(formats, counts, clock, now_micros)
        self._handlers = build_handlers(formats, self._emitter)
        self._switcher = Switcher(log, self._emitter, counts, armed)
        self._progress = ProgressReporter(formats.progress, clock, now_micros)
        self._published_clock = ClockPublisher(formats.clock, now_micros)

    def decode(self, topic: str, value: bytes) -> Decoded:
        """Decode a record of an input, or of the backfill's states, which only a switch reads. Raises: DecodeError."""
        if topic == BACKFILL_STATES:
            record = self._formats.backfilled.decode(value)
            return Decoded(Stored(record["run"], record["state"]), record["recorded_at"], None)
        return self._handlers[topic].decode(value)

    def encode_state(self, state: State) -> bytes:
        """Return the stored form of a user or an account."""
        return encode(state, self._encode_user)

    def decode_state(self, data: bytes) -> State:
        """Return the user or the account of a stored form."""
        return decode(data)

    def process(self, record: Inbound, unit: Unit[State]) -> None:
        """Fold one record into the state of its key and emit the changes."""
        self._handlers[record.topic].handle(record, unit)

    def fire(self, key: bytes, unit: Unit[State]) -> None:
        """Apply the changes that time alone causes, up to and at the unit's stream time."""
        state = user_state(unit, key)
        if state is None:
            return
        emitter = self._emitter
        rules = emitter.rules_of(key, unit)
        emitter.pass_time((key, state, rules), unit.stream_time_ms, unit)
        changes = rules.evaluator.on_timer(state, unit.stream_time_ms)
        emitter.conclude((key, state, rules), changes, TIME, unit)

    def adopt_plan(self) -> bytes:
        """Compile the newest definitions; the name identifies the segments and versions in force."""
        return self._switcher.adopt_plan()

    def has_plan(self, plan: bytes) -> bool:
        """Return whether these definitions are compiled: the newest ones and the ones before them are."""
        return plan in self._emitter.plans

    def before_switch(self, history: History) -> None:
        """Read the history that the new segments need."""
        self._switcher.before_switch(history)

    def switched_prefixes(self, partition: int) -> Sequence[bytes] | None:
        """Return the key prefixes of the workspaces with new definitions."""
        return self._switcher.switched_prefixes(partition)

    def switch(self, key: bytes, state: State, unit: Unit[State]) -> None:
        """Evaluate one user under the new definitions."""
        self._switcher.switch(key, state, unit)

    def after_switch(self, unit: Unit[State]) -> None:
        """Report the definitions that are in force from now on."""
        self._progress.report(unit.stream_time_ms, self._switcher.versions(unit.plan), unit)
        self._switcher.after_switch(unit)

    def on_stream_time(self, _partition: int, stream_time_ms: int, unit: Unit[State]) -> None:
        """Report progress at intervals, but not during a switch: the users of the partition have different versions then."""
        self._counts.publish()
        if not self._switcher.ends_slice(unit):
            self._progress.report_if_due(stream_time_ms, self._switcher.versions(unit.plan), unit)

    def on_instant_over(self, instant_ms: int, received_at: int, unit: Unit[State]) -> None:
        """Publish that no later membership change is effective at or before the instant."""
        self._published_clock.publish(instant_ms, received_at, unit)


def describe(segmenter: Segmenter, *, publishes_clock: bool = True) -> Service[State]:
    """Return the service with its inputs and outputs. `publishes_clock`: whether it writes `segments.clock`."""
    return Service(
        stage=STAGE,
        inputs=tuple(HANDLERS),
        processor=segmenter,
        hold_ms=_HOLD_MS,
        clock=segmenter.clock,
        clock_topics=(CLOCK,),
        bulk_topics=(LIST_MEMBERSHIP,),
        ordered=(BEHAVIOUR, PROFILE),
        on_stream_time=segmenter.on_stream_time,
        on_instant_over=segmenter.on_instant_over if publishes_clock else None,
    )
