"""Edge: what reads from the broker for every channel: consumers and folded topics; and what decrypts the secrets."""

from typing import Final, TypeVar

from starling_common.kafka.clients import bounded_queue, consumer_config, gathering_fetches
from starling_common.kafka.folded_topic import Fold, FoldedTopic
from starling_common.security.sealing import CURE, Sealer
from starling_common.telemetry.logs import log
from starling_common.wire import Registry
from starling_delivery.settings import KitSettings
from starling_delivery.wiring.process import WatchedConsumer

T = TypeVar("T")

REGISTRY_SECONDS: Final = 120.0
"""How long a start waits for the registry."""
_FETCH_WAIT_MS: Final = 50


def sealer(settings: KitSettings) -> Sealer:
    """Return what decrypts the secrets of targets. Raises: ValueError for invalid keys."""
    sealer = Sealer.of(settings.secrets)
    if sealer.key_id is None:
        log(__package__).warning("no_secrets_key", consequence="targets with encrypted secrets wait", cure=CURE)
    return sealer


def consumer_of(settings: KitSettings, group: str) -> WatchedConsumer:
    """Return a consumer of a group, not yet subscribed."""
    more = {
        "session.timeout.ms": 30_000,
        # Static membership: a restarted process continues immediately, without a rebalance.
        "group.instance.id": settings.instance_id,
        **bounded_queue(8_192),
        **gathering_fetches(_FETCH_WAIT_MS),
    }
    return WatchedConsumer(consumer_config(settings.kafka.brokers, group, **more), group)


def folded(
    settings: KitSettings, registry: Registry, topic: tuple[str, str], initial: T, fold: Fold[T], since_ms: int | None = None
) -> FoldedTopic[T]:
    """Return the fold of a topic. `topic`: its name and schema."""
    return FoldedTopic((settings.kafka.brokers, topic[0]), registry.codec(*topic), initial, fold, since_ms=since_ms)
