"""Edge: the normalizer as a processor of the stream layer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starling_common.headers import Headers, header, record_headers
from starling_common.kafka.topics import AGGREGATES, BEHAVIOUR, INGEST_TOPICS, OUTCOMES, PROFILE
from starling_common.outcome import Done, Refused, Skipped
from starling_common.settings import Clock
from starling_common.wire import Codec, DecodeError, RecordReader, RecordWriter
from starling_items import events
from starling_items.computed import fold_computed
from starling_items.pipeline import fold_read, placeless, read_received
from starling_items.profile import WRITTEN_FORMAT, Profile, decode_profile, profile_encoder
from starling_items.work import StageDependencies, Work
from starling_stream.model.processor import Decoded, Inbound, Service, Unit, WithoutPlan

STAGE = "normalizer"
INPUTS = (*INGEST_TOPICS, AGGREGATES)
HOLD_MS = 50
"""The time that a record waits for older ones while no ingest process is live, as when a tool writes to the ingest topics."""


@dataclass(frozen=True, slots=True)
class NormalizerDependencies:
    """The functions on which the normalizer depends."""

    count: Callable[[str, str], None]
    """Counts one record by its source topic and its outcome."""
    now_ms: Callable[[], int]
    """Returns the wall clock."""
    problem: Callable[[], str | None]
    """Returns the error that stopped the catalog's view, or None while it follows its topic."""


class CatalogLost(Exception):
    """The catalog no longer follows its topic, and events would be joined with outdated values."""


class Normalizer(WithoutPlan[Profile]):
    """A `Processor`: an `IngestReceived` yields at most one event and exactly one `IngestOutcome`; also applies computed traits."""

    def __init__(
        self,
        codecs: Mapping[str, Codec],
        stage_dependencies: StageDependencies,
        dependencies: NormalizerDependencies,
        state_format: int = WRITTEN_FORMAT,
    ) -> None:
        """`codecs` maps every input and output topic to its codec. Raises: ValueError if this version cannot write the format."""
        self._encode_profile = profile_encoder(state_format)
        self._readers = {topic: RecordReader(codecs[topic]) for topic in INPUTS}
        self._writers = {topic: RecordWriter(codecs[topic]) for topic in (BEHAVIOUR, PROFILE, OUTCOMES)}
        self._stage_dependencies = stage_dependencies
        self._count = dependencies.count
        self._now_ms = dependencies.now_ms
        self._problem = dependencies.problem

    def decode(self, topic: str, value: bytes) -> Decoded:
        """Return the decoded record with its order of arrival and event time. Raises: DecodeError."""
        record = self._readers[topic](value)
        problem = placeless(record)
        if problem is not None:
            raise DecodeError(problem.code, problem.message)
        if topic == AGGREGATES:
            return Decoded(record, record["received_at"], None)
        read = read_received(record, self._stage_dependencies)
        return Decoded(read, record["received_at"], None if read.refused else read.work.event_time_ms)

    def encode_state(self, state: Profile) -> bytes:
        """Return the stored form of a profile."""
        return self._encode_profile(state)

    def decode_state(self, data: bytes) -> Profile:
        """Return the profile of its stored form."""
        return decode_profile(data)

    def process(self, record: Inbound, unit: Unit[Profile]) -> None:
        """Fold one record into its profile and emit the output records."""
        if record.topic == AGGREGATES:
            self._process_computed(record, unit)
        else:
            self._process_item(record, unit)

    def _process_item(self, record: Inbound, unit: Unit[Profile]) -> None:
        work = record.value.work
        work.key, work.stream_time_ms = record.key, unit.stream_time_ms
        step = fold_read(record.value, unit.get(record.key) or Profile(), self._stage_dependencies)
        origin, now_ms = events.Origin(record.topic, record.partition, record.offset), self._now_ms()
        headers = _headers(record, work.received)
        match step:
            case Work():
                unit.put(record.key, work.profile, None)
                self._emit_event(unit, record, work.topic, work.event, headers)
                outcome = events.accepted(work, origin, now_ms)
            case Skipped():
                outcome = events.duplicate(work, origin, now_ms)
            case Refused(code, message):
                unit.refuse(record, code, message)
                outcome = events.refused(work, step, origin, now_ms)
        self._emit(unit, record, OUTCOMES, outcome, headers)
        self._count(record.topic, outcome["outcome"])

    def _process_computed(self, record: Inbound, unit: Unit[Profile]) -> None:
        profile = unit.get(record.key) or Profile()
        outcome = "OUTDATED"
        match fold_computed(record.value, record.key, profile):
            case Done(changed):
                unit.put(record.key, profile, None)
                outcome = "UNCHANGED"
                if changed is not None:
                    outcome = "CHANGED"
                    self._emit_event(unit, record, PROFILE, changed, _headers(record, record.value))
            case Refused(code, message):
                unit.refuse(record, code, message)
                outcome = "REFUSED"
        self._count(record.topic, outcome)

    def _emit_event(self, unit: Unit[Profile], record: Inbound, topic: str, value: events.Fields, headers: Headers) -> None:
        """Emit a record with its order, by which every later stage merges the two event topics."""
        value["order"], value["previous_order"] = unit.stamp(record.received_at)
        self._emit(unit, record, topic, value, headers)

    def _emit(self, unit: Unit[Profile], record: Inbound, topic: str, value: Mapping[str, Any], headers: Headers) -> None:
        unit.emit(topic, record.key, self._writers[topic](value), record.received_at, headers)

    def fire(self, key: bytes, unit: Unit[Profile]) -> None:
        """Do nothing: profiles have no timers."""

    def adopt_plan(self) -> bytes:
        """Return the empty plan. Raises: CatalogLost if the catalog no longer follows its topic; the worker then stops."""
        problem = self._problem()
        if problem is not None:
            raise CatalogLost(problem)
        return b""


def normalizer_service(normalizer: Normalizer, clock: Clock) -> Service[Profile]:
    """Return the service of the stream layer for a normalizer."""
    return Service(STAGE, INPUTS, normalizer, HOLD_MS, clock, sourced=INGEST_TOPICS)


def _headers(record: Inbound, value: Mapping[str, Any]) -> Headers:
    return record_headers(value["correlation_id"], STAGE, header(record.headers, "traceparent"))
