"""Builds a delivery process from its settings. No other module imports both settings and concrete classes."""

import asyncio
import signal
from dataclasses import dataclass
from functools import partial
from typing import Final

from confluent_kafka import Consumer, Producer
from prometheus_client import REGISTRY

from starling_common.failpoints import Raising
from starling_common.kafka.clients import consumer_config, producer_config
from starling_common.kafka.folded_topic import FoldedTopic
from starling_common.kafka.lost_input import check_input
from starling_common.records.definitions import definitions_fold
from starling_common.retries import retrying
from starling_common.telemetry.health import HealthServer
from starling_common.telemetry.metrics import Metrics
from starling_common.wire import Registry, RegistryUnavailable
from starling_delivery.agents import MembershipAgent, RetryAgent
from starling_delivery.channel import Channel
from starling_delivery.channels import CHANNELS
from starling_delivery.dispatch import Dispatcher
from starling_delivery.outbox import Outbox
from starling_delivery.policy import Schedule
from starling_delivery.settings import Settings
from starling_delivery.targets import Targets, fold_target

_REGISTRY_SECONDS: Final = 120.0
"""How long a start waits for the registry."""


@dataclass
class Delivery:
    """The process of one channel, not yet started."""

    settings: Settings
    channel: Channel
    view: FoldedTopic[Targets]
    agents: tuple[MembershipAgent, RetryAgent]
    health: HealthServer

    async def run(self) -> None:
        """Run until SIGTERM or SIGINT, then complete and record the attempts in progress."""
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        await asyncio.to_thread(self.view.start)
        try:
            async with asyncio.TaskGroup() as group:
                for agent in self.agents:
                    group.create_task(agent.run(stopping))
        finally:
            await self.channel.close()
            await asyncio.to_thread(self.view.stop)
            self.health.stop()


def build(settings: Settings) -> Delivery:
    """Return the process of one channel. Its health server is already started.

    Raises: SchemaMissing, RegistryUnavailable, KeyError for a channel that is not registered.
    """
    metrics, targets = Metrics(REGISTRY), Targets()
    channel = CHANNELS[settings.channel](settings, targets)
    registry = Registry(settings.registry.url)
    outbox = retrying(_REGISTRY_SECONDS)(RegistryUnavailable, _outbox, settings, registry, targets, metrics)
    schedule = Schedule(settings.retry_delays_seconds, settings.give_up_after_seconds)
    dispatcher = Dispatcher(channel, targets, schedule, settings.max_in_flight, settings.failures_before_pause)
    membership_codec = registry.codec(settings.membership_topic, "SegmentMembershipChanged")
    raising = Raising.of(settings.failpoint)
    if raising is not None:
        membership_codec.decode = raising.before("decode", membership_codec.decode)  # type: ignore[method-assign]
    retry_codec = registry.codec(settings.retry_topic, "DeliveryRequested")
    consumer = _consumer(settings, settings.group)
    check = partial(check_input, consumer, settings.channel, [settings.membership_topic], 30)
    agents = (
        MembershipAgent(settings, consumer, membership_codec, targets, dispatcher, outbox, check=check),
        RetryAgent(settings, _consumer(settings, settings.retry_group), retry_codec, dispatcher, outbox),
    )
    view = _view(settings, registry, targets)
    ready: dict[str, MembershipAgent | RetryAgent] = {"membership": agents[0], "retries": agents[1]}
    health = HealthServer(
        (settings.http.host, settings.http.port),
        metrics.registry,
        alive=lambda: {"definitions": view.problem()},
        ready=lambda: (
            {"definitions": view.problem(), "input": agents[0].problem}
            | {name: None if agent.assigned else "no partitions assigned yet" for name, agent in ready.items()}
        ),
    )
    health.start()
    return Delivery(settings, channel, view, agents, health)


def _outbox(settings: Settings, registry: Registry, targets: Targets, metrics: Metrics) -> Outbox:
    return Outbox(settings, Producer(producer_config(settings.kafka.brokers)), registry, targets, metrics)


def _consumer(settings: Settings, group: str) -> Consumer:
    more = {
        # A batch to an endpoint that times out is slow, which must not remove the consumer from the group.
        "max.poll.interval.ms": 900_000,
        "session.timeout.ms": 30_000,
        # Static membership: a restarted process continues immediately, without a rebalance.
        "group.instance.id": settings.instance_id,
    }
    return Consumer(consumer_config(settings.kafka.brokers, group, **more))


def _view(settings: Settings, registry: Registry, targets: Targets) -> FoldedTopic[Targets]:
    topic = settings.definitions_topic
    codec = registry.codec(topic, "DefinitionChanged")
    return FoldedTopic((settings.kafka.brokers, topic), codec, targets, definitions_fold(fold_target))
