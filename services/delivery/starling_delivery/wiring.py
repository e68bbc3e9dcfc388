"""Builds a delivery process from its settings. No other module imports both settings and concrete classes."""

import asyncio
import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import Message as KafkaMessage
from prometheus_client import REGISTRY

from starling_common.failpoints.ending import Ending
from starling_common.failpoints.raising import Raising
from starling_common.kafka.clients import bounded_queue, consumer_config, gathering_fetches, producer_config
from starling_common.kafka.folded_topic import Fold, FoldedTopic
from starling_common.kafka.group_requests import GroupAddress, GroupRequests
from starling_common.kafka.lost_input import check_input
from starling_common.records.definitions import definitions_fold
from starling_common.retries import retrying
from starling_common.sealing import CURE, Sealer
from starling_common.telemetry.health import Degraded, HealthServer, Turns
from starling_common.telemetry.logs import log
from starling_common.telemetry.metrics import Metrics
from starling_common.telemetry.traces import Traces, open_traces
from starling_common.time.instants import wall_clock_ms
from starling_common.wire import Record, RecordReader, Registry, RegistryUnavailable
from starling_delivery.agents import Agent, Input, MembershipInput, RetryInput
from starling_delivery.channel import Answer, Channel, Message
from starling_delivery.channels import CAMPAIGN_CHANNELS, CHANNELS
from starling_delivery.channels.http import BoundedChannel
from starling_delivery.failpoints import FAILPOINTS
from starling_delivery.item import Item
from starling_delivery.messages.definitions import Definitions, fold_definition
from starling_delivery.messages.inputs import MessageRetryInput, RequestInput
from starling_delivery.messages.last_look import LastLook
from starling_delivery.messages.ledger import TRANSACTION_MS, Ledger, Source
from starling_delivery.messages.refusals import CONSENT_MS, RecentConsent, Suppressions, fold_consent, fold_suppression, of_channels
from starling_delivery.messages.steps import MessageSteps
from starling_delivery.outbox import Outbox
from starling_delivery.policy import Request, Schedule, Step
from starling_delivery.progress import EXACT_SPAN, Positions
from starling_delivery.sending.circuit import CircuitRule, Circuits
from starling_delivery.sending.destinations import Destinations
from starling_delivery.sending.dispatch import Dispatcher, Steps, Traffic
from starling_delivery.sending.lanes import Lanes
from starling_delivery.sending.rates import PartitionShare, Rates
from starling_delivery.sending.routing import Routed
from starling_delivery.sending.semantics import AtLeastOnce, Semantics, semantics_of
from starling_delivery.sending.traced import TracedSemantics
from starling_delivery.settings import EMAIL, WEBHOOK, EmailSettings, KitSettings, Settings
from starling_delivery.targets import Targets, fold_target

T = TypeVar("T")

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


class View(Protocol):
    """A folded topic, whatever its value."""

    def start(self) -> None:
        """Read the topic to its end. Blocks."""

    def stop(self) -> None:
        """Stop reading."""

    def problem(self) -> str | None:
        """Return the error that has stopped the reading."""


class Group(NamedTuple):
    """One of the two consumer groups of a process. `topic`: an input, with which the group's requests are tried."""

    name: str
    topic: str
    agent: Agent
    consumer: WatchedConsumer


@dataclass
class Delivery:
    """The process of a channel of feeds, or of the channels of campaigns, not yet started.

    `groups`: of the new messages, and of the retries.
    """

    channels: Sequence[Channel]
    views: Mapping[str, View]
    dispatcher: Dispatcher | Routed
    groups: tuple[Group, Group]
    requests: tuple[GroupRequests, GroupRequests]
    health: HealthServer
    turns: Turns
    ledger: Ledger | None = None

    async def run(self) -> None:
        """Run until SIGTERM or SIGINT, then complete and record the attempts in progress."""
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        for requests in self.requests:
            requests.start()
        if self.ledger is not None:
            await asyncio.to_thread(self.ledger.start)
            self.ledger.run_in(loop)
        for view in self.views.values():
            await asyncio.to_thread(view.start)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._turn(stopping))
                group.create_task(self.dispatcher.run(stopping))
                for one in self.groups:
                    group.create_task(one.agent.run(stopping))
        finally:
            self.turns.rest()
            if self.ledger is not None:
                await asyncio.to_thread(self.ledger.stop)
            for requests in self.requests:
                requests.stop()
            for channel in self.channels:
                await channel.close()
            for view in self.views.values():
                await asyncio.to_thread(view.stop)
            self.health.stop()

    async def _turn(self, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            self.turns.turned()
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), 1)


def build(settings: Settings | EmailSettings) -> Delivery:
    """Return the process of a channel of feeds, or of the channels of campaigns. Its health server is already started.

    Raises: SchemaMissing, RegistryUnavailable, KeyError for a channel that is not registered, ValueError for invalid keys.
    """
    return _build_messages(settings) if isinstance(settings, EmailSettings) else _build_feeds(settings)


def _build_feeds(settings: Settings) -> Delivery:
    metrics, targets = Metrics(REGISTRY), Targets(_sealer(settings))
    channel = CHANNELS[settings.channel](settings, targets)
    registry = Registry(settings.registry.url)
    outbox = retrying(_REGISTRY_SECONDS)(RegistryUnavailable, _outbox, settings, registry, targets, metrics)
    # A channel decodes every membership change, for which most workspaces have no target.
    changes: Callable[[bytes], Record] = RecordReader(registry.codec(settings.membership_topic, "SegmentMembershipChanged"))
    retries: Callable[[bytes], Record] = RecordReader(registry.codec(settings.retry_topic, "DeliveryRequested"))
    raising = Raising.of(settings.failpoint)
    if raising is not None:
        changes, retries = raising.before("decode", changes), raising.before("decode", retries)
        _arm(raising, channel, outbox)

    def of_feed(request: Request) -> bool:
        # A campaign may have a channel of the same name.
        return bool(request["channel"] == settings.channel and request.get("campaign") is None)

    share = PartitionShare(settings.group, settings.retry_group)
    known = targets, Rates(share, time.monotonic())
    traces = _traces(settings, settings.channel)
    semantics = _traced(AtLeastOnce(), traces, settings.channel)
    dispatcher = _dispatcher(settings, channel, known, semantics, outbox, metrics)
    consumers = _consumer(settings, settings.group), _consumer(settings, settings.retry_group)
    agents = (
        _agent(
            (consumers[0], settings.group),
            MembershipInput([settings.membership_topic], changes, targets, settings.channel),
            share,
            dispatcher,
            outbox,
            traced=traces is not None,
        ),
        _agent(
            (consumers[1], settings.retry_group),
            _retry_input(settings, retries, of_feed),
            share,
            dispatcher,
            outbox,
            traced=traces is not None,
        ),
    )
    groups = (
        Group(settings.group, settings.membership_topic, agents[0], consumers[0]),
        Group(settings.retry_group, settings.retry_topic, agents[1], consumers[1]),
    )
    views = {"definitions": _definitions_view(settings, registry, targets)}
    return _delivery(settings, metrics, _Parts([channel], views, targets, dispatcher, groups))


def _build_messages(settings: EmailSettings) -> Delivery:
    metrics, definitions = Metrics(REGISTRY), Definitions(sealer=_sealer(settings))
    ending = Ending(settings.failpoint, FAILPOINTS)
    channels = {
        name: BoundedChannel(CAMPAIGN_CHANNELS[name](settings, definitions, ending.passed), settings.timeout_seconds)
        for name in settings.channels
    }
    suppressions: Mapping[str, Suppressions] = {name: Suppressions(name) for name in channels}
    consent: Mapping[str, RecentConsent] = {name: RecentConsent(name) for name in channels}
    registry = Registry(settings.registry.url)
    request_topics, bulk_topics = list(settings.request_topics.values()), list(settings.bulk_topics.values())
    # The topics of all channels have one schema.
    requests = RecordReader(
        retrying(_REGISTRY_SECONDS)(RegistryUnavailable, registry.codec, request_topics[0], "DeliveryRequested")
    )
    retries = RecordReader(registry.codec(settings.retry_topic, "DeliveryRequested"))
    consumers = _consumer(settings, settings.group), _consumer(settings, settings.retry_group)
    positions = Positions(EXACT_SPAN), Positions(EXACT_SPAN)
    ledger = Ledger(_transactional_producer(settings), [Source(*one) for one in zip(positions, consumers, strict=True)])
    steps = MessageSteps(settings, ledger, registry, definitions, metrics)
    traces = _traces(settings, EMAIL)

    def dispatcher_of(channel: BoundedChannel) -> Dispatcher:
        name = channel.name
        look = LastLook(definitions, suppressions[name], consent[name], channel.hold, channel.unsubscribe_link)
        semantics = _traced(semantics_of(channel.semantics, look, steps, ending.passed), traces, name)
        return _dispatcher(settings, channel, (definitions, None), semantics, steps, metrics)

    def of_campaign(request: Request) -> bool:
        return request["channel"] in channels and request.get("campaign") is not None

    dispatcher = Routed({name: dispatcher_of(channel) for name, channel in channels.items()})
    inputs: tuple[Input, Input] = (
        RequestInput([*request_topics, *bulk_topics], requests, channels.keys(), definitions, frozenset(bulk_topics)),
        MessageRetryInput(_retry_input(settings, retries, of_campaign), definitions),
    )
    stages = (EMAIL, f"{EMAIL}-retry")
    agents = tuple(
        Agent(
            source,
            consumer,
            dispatcher,
            steps,
            check=partial(_check, consumer, stage, source),
            positions=own,
            commits=False,
            traced=traces is not None,
        )
        for source, consumer, stage, own in zip(inputs, consumers, stages, positions, strict=True)
    )
    groups = (
        Group(settings.group, request_topics[0], agents[0], consumers[0]),
        Group(settings.retry_group, settings.retry_topic, agents[1], consumers[1]),
    )
    since_ms = wall_clock_ms() - CONSENT_MS
    views: dict[str, View] = {
        "definitions": _view(
            settings, registry, (settings.definitions_topic, "DefinitionChanged"), definitions, definitions_fold(fold_definition)
        ),
        "suppressions": _view(
            settings, registry, (settings.suppressions_topic, "AddressSuppressed"), suppressions, of_channels(fold_suppression)
        ),
        "consent": _view(
            settings, registry, (settings.consent_topic, "ConsentChanged"), consent, of_channels(fold_consent), since_ms
        ),
    }
    return _delivery(settings, metrics, _Parts(list(channels.values()), views, definitions, dispatcher, groups, ledger))


def _traces(settings: Settings | EmailSettings, name: str) -> Traces | None:
    return open_traces(settings.traces, f"delivery-{name}", settings.instance_id)


def _traced(semantics: Semantics, traces: Traces | None, channel: str) -> Semantics:
    """Return the semantics, with spans if traces are on."""
    return semantics if traces is None else TracedSemantics(semantics, traces, channel)


class _Parts(NamedTuple):
    """What differs between feeds and messages."""

    channels: Sequence[Channel]
    views: Mapping[str, View]
    targets: Targets | Definitions
    dispatcher: Dispatcher | Routed
    groups: tuple[Group, Group]
    ledger: Ledger | None = None


def _delivery(settings: KitSettings, metrics: Metrics, parts: _Parts) -> Delivery:
    """Return the process, with its health server started."""
    turns, requests = Turns("the event loop", _MOST_BLOCKED_SECONDS), _requests(settings, parts.groups, metrics)
    health = _health(settings, metrics, _Observed(parts.views, parts.targets, parts.groups, requests, turns, parts.ledger))
    health.start()
    return Delivery(parts.channels, parts.views, parts.dispatcher, parts.groups, requests, health, turns, parts.ledger)


def _sealer(settings: KitSettings) -> Sealer:
    sealer = Sealer.of(settings.secrets)
    if sealer.key_id is None:
        log(__name__).warning("no_secrets_key", consequence="targets with encrypted secrets wait", cure=CURE)
    return sealer


def _requests(settings: KitSettings, groups: tuple[Group, Group], metrics: Metrics) -> tuple[GroupRequests, GroupRequests]:
    """Return the measurement of refused requests of both consumer groups."""
    refused = metrics.gauge("starling_group_refused_seconds")
    first, second = (
        GroupRequests(
            GroupAddress(settings.kafka.brokers, one.name, one.topic), settings.group_failure_seconds, refused.labels(one.name).set
        )
        for one in groups
    )
    return first, second


class _Observed(NamedTuple):
    """The parts whose problems the health server reports."""

    views: Mapping[str, View]
    targets: Targets | Definitions
    groups: tuple[Group, Group]
    requests: tuple[GroupRequests, GroupRequests]
    turns: Turns
    ledger: Ledger | None


def _health(settings: KitSettings, metrics: Metrics, observed: _Observed) -> HealthServer:
    """Return the health server, not started."""
    views, targets, (new, retries), requests, turns, ledger = observed
    agents = {"membership" if ledger is None else "requests": new.agent, "retries": retries.agent}
    return HealthServer(
        (settings.http.host, settings.http.port),
        metrics.registry,
        alive=lambda: {
            **{name: view.problem() for name, view in views.items()},
            "event loop": turns.problem(),
            # Partitions may be paused, so a consumer that receives nothing is no problem.
            **{name: group.consumer.turns.problem() for name, group in zip(agents, (new, retries), strict=True)},
            "group": requests[0].problem,
            "group of retries": requests[1].problem,
            **({} if ledger is None else {"transactions": ledger.turns.problem()}),
        },
        ready=lambda: (
            {name: view.problem() for name, view in views.items()}
            | {"secrets": _unreadable(targets)}
            | {"input": new.agent.problem, "input of retries": retries.agent.problem}
            | {name: None if agent.assigned else "no partitions assigned yet" for name, agent in agents.items()}
        ),
    )


def _unreadable(targets: Targets | Definitions) -> str | None:
    found = targets.problems()
    return Degraded(f"the messages of {len(found)} targets wait: {found[0]}") if found else None


def _outbox(settings: Settings, registry: Registry, targets: Targets, metrics: Metrics) -> Outbox:
    # A broker that is away for a minute ends the process; its supervisor starts it again.
    config = producer_config(settings.kafka.brokers, **{"message.timeout.ms": 60_000})
    return Outbox(settings, Producer(config), registry, targets, metrics)


def _transactional_producer(settings: EmailSettings) -> Producer:
    own = {
        "transactional.id": f"{settings.transactional_id}-{settings.instance_id}",
        "transaction.timeout.ms": TRANSACTION_MS,
        "message.timeout.ms": TRANSACTION_MS,
        "linger.ms": 0,  # the ledger gathers
        # The broker may still complete the last transaction when the next one begins, and returns a retriable error.
        "retry.backoff.ms": 10,
    }
    return Producer(producer_config(settings.kafka.brokers, **own))


def _dispatcher(
    settings: KitSettings,
    channel: Channel,
    known: tuple[Destinations, Rates | None],
    semantics: Semantics,
    steps: Steps,
    metrics: Metrics,
) -> Dispatcher:
    targets, rates = known
    return Dispatcher(
        channel,
        targets,
        _schedule(settings, channel.name),
        Traffic(
            Lanes(settings.max_in_flight, settings.memory_mb * 1_000_000, settings.lane_messages, rates),
            Circuits(CircuitRule(settings.failures_before_pause, settings.probe_seconds)),
            semantics,
        ),
        steps,
        metrics,
    )


def _schedule(settings: KitSettings, channel: str | None = None) -> Schedule:
    """Return the schedule of a channel of campaigns; None: that of the settings."""
    own = settings.give_up_seconds(channel) if isinstance(settings, EmailSettings) and channel is not None else None
    return Schedule(settings.retry_delays_seconds, settings.give_up_after_seconds if own is None else own)


def _retry_input(settings: KitSettings, decode: Callable[[bytes], Record], is_wanted: Callable[[Request], bool]) -> RetryInput:
    tiers = {topic: position for position, topic in enumerate(settings.tier_topics.values())}
    return RetryInput([settings.retry_pattern], decode, is_wanted, tiers, _schedule(settings).longest_ms)


def _agent(
    member: tuple[Consumer, str], source: Input, share: PartitionShare, dispatcher: Dispatcher, outbox: Outbox, *, traced: bool
) -> Agent:
    """`member`: the consumer and its group."""
    consumer, group = member
    stage = f"{WEBHOOK}-retry" if isinstance(source, RetryInput) else WEBHOOK
    check, count = partial(_check, consumer, stage, source), partial(_count, consumer, group, source, share)
    return Agent(source, consumer, dispatcher, outbox, check=check, on_partitions=count, traced=traced)


def _topics(consumer: Consumer, source: Input) -> Mapping[str, int]:
    """Return the partitions of each topic of an input."""
    existing = consumer.list_topics(timeout=_BROKER_SECONDS).topics
    matching = (topic for topic in existing if any(re.fullmatch(pattern, topic) for pattern in source.topics))
    return {topic: len(existing[topic].partitions) for topic in matching}


def _check(consumer: Consumer, stage: str, source: Input) -> None:
    check_input(consumer, stage, list(_topics(consumer, source)), _BROKER_SECONDS)


def _count(consumer: Consumer, group: str, source: Input, share: PartitionShare, assigned: int) -> None:
    """Note the share of the partitions. The broker is not asked about a revocation, which may be that of a consumer that closes."""
    if not assigned and share.has_counted(group):
        share.assign(group, 0, 0)
        return
    try:
        total = sum(_topics(consumer, source).values())
    except KafkaException as error:  # the former number stays; the next assignment counts again
        log(__name__).warning("partitions_not_counted", group=group, error=str(error))
        total = 0
    share.assign(group, assigned, total)


def _arm(raising: Raising, channel: Channel, outbox: Outbox) -> None:
    """Let the points send and outcome raise for the records of the failpoint."""
    send, record = channel.send, outbox.record

    async def raising_send(message: Message) -> Answer:
        raising.passed("send", message.payload.encode())
        return await send(message)

    def raising_record(item: Item, step: Step, stored: Callable[[], None]) -> None:
        raising.passed("outcome", item.request["payload"].encode())
        record(item, step, stored)

    channel.send = raising_send  # type: ignore[method-assign]
    outbox.record = raising_record  # type: ignore[method-assign]


def _consumer(settings: KitSettings, group: str) -> WatchedConsumer:
    more = {
        "session.timeout.ms": 30_000,
        # Static membership: a restarted process continues immediately, without a rebalance.
        "group.instance.id": settings.instance_id,
        **bounded_queue(8_192),
        **gathering_fetches(_FETCH_WAIT_MS),
    }
    return WatchedConsumer(consumer_config(settings.kafka.brokers, group, **more), group)


def _definitions_view(settings: Settings, registry: Registry, targets: Targets) -> FoldedTopic[Targets]:
    return _view(settings, registry, (settings.definitions_topic, "DefinitionChanged"), targets, definitions_fold(fold_target))


def _view(
    settings: KitSettings, registry: Registry, topic: tuple[str, str], initial: T, fold: Fold[T], since_ms: int | None = None
) -> FoldedTopic[T]:
    """Return the fold of a topic. `topic`: its name and schema."""
    return FoldedTopic((settings.kafka.brokers, topic[0]), registry.codec(*topic), initial, fold, since_ms=since_ms)
