"""Wiring: the only module that imports both the settings and the concrete classes."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from starling_common.kafka.folded_topic import FoldedTopic
from starling_common.kafka.topics import (
    CAMPAIGN_PROGRESS,
    DELIVERY,
    DELIVERY_DEFINITIONS,
    MESSENGER_PROGRESS,
    SUPPRESSIONS,
    load_catalogue,
)  # fmt: skip
from starling_common.records.definitions import definitions_fold
from starling_common.records.suppressions import SuppressedAddresses, fold_suppression
from starling_common.telemetry.metrics import Metrics
from starling_common.time.instants import wall_clock_micros
from starling_common.wire import Codec, Registry
from starling_messages.campaigns import Campaigns, fold_definition
from starling_messages.state import PersonState
from starling_messenger.agents import Messenger, Sources, describe
from starling_messenger.progress import ProgressReporter
from starling_messenger.records import REQUEST_TOPICS, Emitter, Formats
from starling_messenger.settings import Settings
from starling_stream.model.processor import Service


@contextmanager
def open_service(settings: Settings) -> Iterator[Service[PersonState]]:
    """Yield the service with all present campaigns and suppressions; both topics are followed until the block ends.

    Raises: RegistryUnavailable, SchemaMissing, BrokerUnavailable.
    """
    topics, registry = load_catalogue().topics, Registry(settings.registry.url)

    def codec(topic: str) -> Codec:
        return registry.codec(topic, topics[topic].schema)

    refused = Metrics().counter("starling_messenger_definitions_refused_total")
    definitions = FoldedTopic(
        (settings.kafka.brokers, DELIVERY_DEFINITIONS),
        codec(DELIVERY_DEFINITIONS),
        Campaigns(),
        definitions_fold(fold_definition),
        lambda found: refused.labels(found.code).inc(),
    )
    suppressions = FoldedTopic((settings.kafka.brokers, SUPPRESSIONS), codec(SUPPRESSIONS), SuppressedAddresses(), fold_suppression)
    definitions.start()
    suppressions.start()
    try:
        found = suppressions.value()
        formats = Formats(
            codec(next(iter(REQUEST_TOPICS.values()))), codec(DELIVERY), codec(CAMPAIGN_PROGRESS), codec(SUPPRESSIONS)
        )
        yield describe(
            Messenger(
                codec,
                Sources(lambda: _newest(definitions), found.kind),
                Emitter(formats),
                ProgressReporter(codec(MESSENGER_PROGRESS), wall_clock_micros),
                settings.clock,
                wall_clock_micros,
            )
        )
    finally:
        suppressions.stop()
        definitions.stop()


def _newest(definitions: FoldedTopic[Campaigns]) -> tuple[Campaigns, int]:
    """Return the campaigns and an offset that they are not older than. Raises: DefinitionsLost if newer ones cannot be read."""
    problem = definitions.problem()
    if problem is not None:
        raise DefinitionsLost(problem)
    positions: Mapping[int, int] = definitions.positions()
    return definitions.value(), positions.get(0, 0)


class DefinitionsLost(RuntimeError):
    """The thread that follows `delivery.definitions` has stopped: decisions by outdated campaigns would be wrong."""
