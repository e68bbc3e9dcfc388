"""Wiring: the only module that imports both the settings and the concrete classes."""

from collections.abc import Iterator
from contextlib import contextmanager

from starling_common.failpoints.raising import Raising
from starling_common.kafka.folded_topic import FoldedTopic
from starling_common.kafka.topics import SEGMENT_DEFINITIONS
from starling_common.telemetry.metrics import Metrics
from starling_common.time.instants import wall_clock_micros
from starling_common.wire import Registry
from starling_segmenter.agents import Segmenter, describe
from starling_segmenter.counts import Counts
from starling_segmenter.records.formats import build_formats
from starling_segmenter.settings import Settings
from starling_segmenter.state.states import State
from starling_segmenter.switching.definition_log import DefinitionLog, fold_topic
from starling_stream.model.processor import Service


@contextmanager
def open_service(settings: Settings) -> Iterator[Service[State]]:
    """Yield the service with all present definitions; the topic is followed until the block ends.

    Raises: RegistryUnavailable, SchemaMissing, BrokerUnavailable.
    """
    counts = Counts(Metrics())
    formats = build_formats(Registry(settings.registry.url).codec, settings.state_format)
    definitions = DefinitionLog()
    source = (settings.kafka.brokers, SEGMENT_DEFINITIONS)
    topic = FoldedTopic(
        source, formats.definition, definitions, fold_topic, lambda refused: counts.definition_refused(refused.code)
    )
    definitions.problem = topic.problem
    topic.start()
    try:
        armed = Raising.of(settings.failpoint)
        segmenter = Segmenter(formats, definitions, counts, settings.clock, wall_clock_micros, armed)
        yield describe(segmenter, publishes_clock=settings.publish_clock)
    finally:
        topic.stop()
