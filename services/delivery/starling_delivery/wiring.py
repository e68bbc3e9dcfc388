"""Builds a delivery process from its settings. No other module imports both settings and concrete classes."""

import asyncio
import re
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, Producer
from confluent_kafka import Message as KafkaMessage
from prometheus_client import REGISTRY

from starling_common.failpoints import Raising
from starling_common.kafka.clients import consumer_config, gathering_fetches, producer_config
from starling_common.kafka.folded_topic import FoldedTopic
from starling_common.kafka.group_requests import GroupAddress, GroupRequests
from starling_common.kafka.lost_input import check_input
from starling_common.records.definitions import definitions_fold
from starling_common.retries import retrying
from starling_common.telemetry.health import HealthServer, Turns
from starling_common.telemetry.metrics import Metrics
from starling_common.wire import Record, RecordReader, Registry, RegistryUnavailable
from starling_delivery.agents import Agent, Input, MembershipInput, RetryInput
from starling_delivery.channel import Answer, Channel, Message
from starling_delivery.channels import CHANNELS
from starling_delivery.outbox import Outbox
from starling_delivery.policy import Request, Schedule, Step
from starling_delivery.sending.circuit import CircuitRule, Circuits
from starling_delivery.sending.dispatch import Dispatcher, Traffic
from starling_delivery.sending.lanes import Lanes
from starling_delivery.settings import WEBHOOK, Settings
from starling_delivery.targets import Targets, fold_target

_REGISTRY_SECONDS: Final = 120.0
"""How long a start waits for the registry."""
_MOST_TURN_SECONDS: Final = 300.0
"""Maximum time between two polls. After it the group reassigns the partitions."""
_MOST_BLOCKED_SECONDS: Final = 60.0
"""Every call that waits has a thread of its own, so the event loop always turns within a second."""
_FETCH_WAIT_MS: Final = 50

_BROKER_SECONDS: Final = 30.0


class WatchedConsumer(Consumer):
    """A consumer whose polls are noted for liveness."""

    def __init__(self, config: dict[str, Any], name: str) -> None:
        super().__init__(config)
        self.turns = Turns(f"the loop of {name}", _MOST_TURN_SECONDS)

    def poll(self, *arguments: Any, **named: Any) -> KafkaMessage | None:
        """Return the first message of a poll."""
        self.turns.turned()
        message: KafkaMessage | None = super().poll(*arguments, **named)
        return message


@dataclass
class Delivery:
    """The process of one channel, not yet started."""

    settings: Settings
    channel: Channel
    view: FoldedTopic[Targets]
    dispatcher: Dispatcher
    agents: tuple[Agent, Agent]
    health: HealthServer
    turns: Turns
    groups: tuple[GroupRequests, GroupRequests]

    async def run(self) -> None:
        """Run until SIGTERM or SIGINT, then complete and record the attempts in progress."""
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        for requests in self.groups:
            requests.start()
        await asyncio.to_thread(self.view.start)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._turn(stopping))
                for part in (self.dispatcher, *self.agents):
                    group.create_task(part.run(stopping))
        finally:
            self.turns.rest()
            for requests in self.groups:
                requests.stop()
            await self.channel.close()
            await asyncio.to_thread(self.view.stop)
            self.health.stop()

    async def _turn(self, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            self.turns.turned()
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), 1)


def build(settings: Settings) -> Delivery:
    """Return the process of one channel. Its health server is already started.

    Raises: SchemaMissing, RegistryUnavailable, KeyError for a channel that is not registered.
    """
    metrics, targets = Metrics(REGISTRY), Targets()
    channel = CHANNELS[settings.channel](settings, targets)
    registry = Registry(settings.registry.url)
    outbox = retrying(_REGISTRY_SECONDS)(RegistryUnavailable, _outbox, settings, registry, targets, metrics)
    # A channel decodes every membership change, for which most workspaces have no target.
    changes: Callable[[bytes], Record] = RecordReader(registry.codec(settings.membership_topic, "SegmentMembershipChanged"))
    retries: Callable[[bytes], Record] = registry.codec(settings.retry_topic, "DeliveryRequested").decode
    raising = Raising.of(settings.failpoint)
    if raising is not None:
        changes, retries = raising.before("decode", changes), raising.before("decode", retries)
        _arm(raising, channel, outbox)
    dispatcher = _dispatcher(settings, channel, targets, outbox, metrics)
    tiers = {topic: position for position, topic in enumerate(settings.tier_topics.values())}
    consumers = _consumer(settings, settings.group), _consumer(settings, settings.retry_group)
    turns = Turns("the event loop", _MOST_BLOCKED_SECONDS)
    agents = (
        _agent(consumers[0], MembershipInput([settings.membership_topic], changes, targets, settings.channel), dispatcher, outbox),
        _agent(
            consumers[1],
            RetryInput([settings.retry_pattern], retries, settings.channel, tiers, _schedule(settings).longest_ms),
            dispatcher,
            outbox,
        ),
    )
    view = _view(settings, registry, targets)
    groups = _groups(settings, metrics)
    health = _health(settings, metrics, _Observed(view, agents, consumers, turns, groups))
    health.start()
    return Delivery(settings, channel, view, dispatcher, agents, health, turns, groups)


def _groups(settings: Settings, metrics: Metrics) -> tuple[GroupRequests, GroupRequests]:
    """Return the measurement of refused requests of both consumer groups."""
    refused = metrics.gauge("starling_group_refused_seconds")
    named = ((settings.group, settings.membership_topic), (settings.retry_group, settings.retry_topic))
    first, second = (
        GroupRequests(GroupAddress(settings.kafka.brokers, group, topic), settings.group_failure_seconds, refused.labels(group).set)
        for group, topic in named
    )
    return first, second


class _Observed(NamedTuple):
    """The parts whose problems the health server reports."""

    view: FoldedTopic[Targets]
    agents: tuple[Agent, Agent]
    consumers: tuple[WatchedConsumer, WatchedConsumer]
    turns: Turns
    groups: tuple[GroupRequests, GroupRequests]


def _health(settings: Settings, metrics: Metrics, observed: _Observed) -> HealthServer:
    """Return the health server, not started."""
    view, agents, consumers, turns, groups = observed
    ready: dict[str, Agent] = {"membership": agents[0], "retries": agents[1]}
    return HealthServer(
        (settings.http.host, settings.http.port),
        metrics.registry,
        alive=lambda: {
            "definitions": view.problem(),
            "event loop": turns.problem(),
            # Partitions may be paused, so a consumer that receives nothing is no problem.
            "membership": consumers[0].turns.problem(),
            "retries": consumers[1].turns.problem(),
            "group": groups[0].problem,
            "group of retries": groups[1].problem,
        },
        ready=lambda: (
            {"definitions": view.problem(), "input": agents[0].problem, "input of retries": agents[1].problem}
            | {name: None if agent.assigned else "no partitions assigned yet" for name, agent in ready.items()}
        ),
    )


def _outbox(settings: Settings, registry: Registry, targets: Targets, metrics: Metrics) -> Outbox:
    # A broker that is away for a minute ends the process; its supervisor starts it again.
    config = producer_config(settings.kafka.brokers, **{"message.timeout.ms": 60_000})
    return Outbox(settings, Producer(config), registry, targets, metrics)


def _dispatcher(settings: Settings, channel: Channel, targets: Targets, outbox: Outbox, metrics: Metrics) -> Dispatcher:
    return Dispatcher(
        channel,
        targets,
        _schedule(settings),
        Traffic(
            Lanes(settings.max_in_flight, settings.memory_mb * 1_000_000, settings.lane_messages),
            Circuits(CircuitRule(settings.failures_before_pause, settings.probe_seconds)),
        ),
        outbox,
        metrics,
    )


def _schedule(settings: Settings) -> Schedule:
    return Schedule(settings.retry_delays_seconds, settings.give_up_after_seconds)


def _agent(consumer: Consumer, source: Input, dispatcher: Dispatcher, outbox: Outbox) -> Agent:
    stage = f"{source.channel}-retry" if isinstance(source, RetryInput) else WEBHOOK
    return Agent(source, consumer, dispatcher, outbox, check=partial(_check, consumer, stage, source))


def _check(consumer: Consumer, stage: str, source: Input) -> None:
    existing = consumer.list_topics(timeout=_BROKER_SECONDS).topics
    topics = [topic for topic in existing if any(re.fullmatch(pattern, topic) for pattern in source.topics)]
    check_input(consumer, stage, topics, _BROKER_SECONDS)


def _arm(raising: Raising, channel: Channel, outbox: Outbox) -> None:
    """Let the points send and outcome raise for the records of the failpoint."""
    send, record = channel.send, outbox.record

    async def raising_send(message: Message) -> Answer:
        raising.passed("send", message.payload.encode())
        return await send(message)

    def raising_record(request: Request, step: Step, stored: Callable[[], None]) -> None:
        raising.passed("outcome", request["payload"].encode())
        record(request, step, stored)

    channel.send = raising_send  # type: ignore[method-assign]
    outbox.record = raising_record  # type: ignore[method-assign]


def _consumer(settings: Settings, group: str) -> WatchedConsumer:
    more = {
        "session.timeout.ms": 30_000,
        # Static membership: a restarted process continues immediately, without a rebalance.
        "group.instance.id": settings.instance_id,
        "queued.max.messages.kbytes": 8_192,
        **gathering_fetches(_FETCH_WAIT_MS),
    }
    return WatchedConsumer(consumer_config(settings.kafka.brokers, group, **more), group)


def _view(settings: Settings, registry: Registry, targets: Targets) -> FoldedTopic[Targets]:
    topic = settings.definitions_topic
    codec = registry.codec(topic, "DefinitionChanged")
    return FoldedTopic((settings.kafka.brokers, topic), codec, targets, definitions_fold(fold_target))
