"""Build the service from its settings; the only module that knows settings and concrete classes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

from starling_common.kafka.topics import AGGREGATES, BEHAVIOUR, OUTCOMES, PRODUCTS, PROFILE, load_catalogue
from starling_common.telemetry.metrics import Metrics
from starling_common.time.instants import wall_clock_ms
from starling_common.wire import Codec, Registry
from starling_items.profile import Profile
from starling_items.work import StageDependencies
from starling_normalizer.agents import INPUTS, Normalizer, NormalizerDependencies, normalizer_service
from starling_normalizer.catalog import Catalog
from starling_normalizer.settings import Settings
from starling_stream.model.processor import Service


@contextmanager
def open_service(settings: Settings) -> Iterator[Service[Profile]]:
    """Yield the service after the whole catalog is loaded; the catalog follows its topic until the block ends.

    Raises: RegistryUnavailable, SchemaMissing, BrokerUnavailable.
    """
    codec = _codecs(Registry(settings.registry.url))
    catalog = Catalog(settings.kafka.brokers, codec(PRODUCTS))
    catalog.start()
    try:
        codecs = {topic: codec(topic) for topic in (*INPUTS, BEHAVIOUR, PROFILE, OUTCOMES)}
        dependencies = NormalizerDependencies(_counter(Metrics()), wall_clock_ms, catalog.problem)
        stage_dependencies = StageDependencies(settings.clock, catalog.find, settings.duplicate_window_hours * 3_600_000)
        normalizer = Normalizer(codecs, stage_dependencies, dependencies, settings.state_format)
        yield normalizer_service(normalizer, settings.clock)
    finally:
        catalog.stop()


def _codecs(registry: Registry) -> Callable[[str], Codec]:
    topics = load_catalogue().topics
    return lambda topic: registry.codec(topic, topics[topic].schema)


def _counter(metrics: Metrics) -> Callable[[str, str], None]:
    items = metrics.counter("starling_normalizer_items_total")
    computed = metrics.counter("starling_normalizer_computed_total")

    @cache
    def series(topic: str, outcome: str) -> Callable[[], None]:
        if topic == AGGREGATES:
            return computed.labels(outcome).inc
        return items.labels(topic.partition(".")[2], outcome).inc

    return lambda topic, outcome: series(topic, outcome)()
