"""Wiring: the only module that imports both the settings and the concrete classes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import Message

from starling_common.instants import wall_clock_micros
from starling_common.kafka import TopicView
from starling_common.logs import log
from starling_common.metrics import Metrics
from starling_common.outcome import Refused
from starling_common.topics import SEGMENT_DEFINITIONS
from starling_common.wire import Codec, DecodeError, Registry
from starling_segmenter.agents import Segmenter, describe
from starling_segmenter.counts import Counts
from starling_segmenter.definition_log import DefinitionLog
from starling_segmenter.formats import build_formats
from starling_segmenter.settings import Settings
from starling_segmenter.states import State
from starling_stream.model.processor import Service


@contextmanager
def open_service(settings: Settings) -> Iterator[Service[State]]:
    """Yield the service with all present definitions; the topic is followed until the block ends.

    Raises: RegistryUnavailable, SchemaMissing, BrokerUnavailable.
    """
    counts = Counts(Metrics())
    formats = build_formats(Registry(settings.registry.url).codec)
    refuse = _count_and_log(counts)
    definitions = DefinitionLog(refuse)
    view = TopicView(settings.kafka.brokers, SEGMENT_DEFINITIONS, _append_to(definitions, formats.definition, refuse))
    definitions.problem = view.problem
    view.start()
    try:
        yield describe(Segmenter(formats, definitions, counts, settings.clock, wall_clock_micros))
    finally:
        view.stop()


def _append_to(definitions: DefinitionLog, codec: Codec, refuse: Callable[[Refused], None]) -> Callable[[Message], None]:
    def apply(message: Message) -> None:
        try:
            record = codec.decode(message.value() or b"")
        except DecodeError as error:
            refuse(Refused(error.code, f"offset {message.offset()}: {error}"))
        else:
            definitions.append(record)

    return apply


def _count_and_log(counts: Counts) -> Callable[[Refused], None]:
    def refuse(refused: Refused) -> None:
        counts.definition_refused(refused.code)
        log(__name__).warning("definition_refused", code=refused.code, message=refused.message)

    return refuse
