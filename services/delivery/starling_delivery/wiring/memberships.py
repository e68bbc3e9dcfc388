"""Edge: the process of a channel of feeds: a message for each membership change, at least once."""

import time
from collections.abc import Callable
from functools import partial

from confluent_kafka import Consumer, KafkaException, Producer
from prometheus_client import REGISTRY

from starling_common.failpoints.raising import Raising
from starling_common.kafka.clients import producer_config
from starling_common.records.definitions import definitions_fold
from starling_common.retries import retrying
from starling_common.telemetry.logs import log
from starling_common.telemetry.metrics import Metrics
from starling_common.wire import Record, RecordReader, Registry, RegistryUnavailable
from starling_delivery.agents import Agent, Input, MembershipInput, RetryInput
from starling_delivery.channel import Answer, Channel, Message
from starling_delivery.channels import CHANNELS
from starling_delivery.item import Item
from starling_delivery.outbox import Outbox
from starling_delivery.policy import Request, Step
from starling_delivery.sending.dispatch import Dispatcher
from starling_delivery.sending.rates import PartitionShare, Rates
from starling_delivery.sending.semantics import AtLeastOnce
from starling_delivery.settings import WEBHOOK, Settings
from starling_delivery.targets import Targets, fold_target
from starling_delivery.wiring.assembly import Parts, assembled
from starling_delivery.wiring.clients import REGISTRY_SECONDS, consumer_of, folded, sealer
from starling_delivery.wiring.inputs import check, retry_input, topics_of
from starling_delivery.wiring.process import Delivery, Group
from starling_delivery.wiring.sending import dispatcher_of, traced, traces_of


def build_memberships(settings: Settings) -> Delivery:
    """Return the process, with its health server started. Raises: as `build`."""
    metrics, targets = Metrics(REGISTRY), Targets(sealer(settings))
    channel = CHANNELS[settings.channel](settings, targets)
    registry = Registry(settings.registry.url)
    outbox = retrying(REGISTRY_SECONDS)(RegistryUnavailable, _outbox, settings, registry, targets, metrics)
    # A channel decodes every membership change, for which most workspaces have no target.
    changes: Callable[[bytes], Record] = RecordReader(registry.codec(settings.membership_topic, "SegmentMembershipChanged"))
    retries: Callable[[bytes], Record] = RecordReader(registry.codec(settings.retry_topic, "DeliveryRequested"))
    raising = Raising.of(settings.failpoint)
    if raising is not None:
        changes, retries = raising.before("decode", changes), raising.before("decode", retries)
        _arm(raising, channel, outbox)
    share = PartitionShare(settings.group, settings.retry_group)
    known = targets, Rates(share, time.monotonic())
    traces = traces_of(settings, settings.channel)
    semantics = traced(AtLeastOnce(), traces, settings.channel)
    dispatcher = dispatcher_of(settings, channel, known, semantics, outbox, metrics)
    inputs = (
        MembershipInput([settings.membership_topic], changes, targets, settings.channel),
        retry_input(settings, retries, partial(_is_of_feed, settings.channel)),
    )
    groups = _groups(settings, inputs, share, dispatcher, outbox, is_traced=traces is not None)
    definitions = folded(
        settings, registry, (settings.definitions_topic, "DefinitionChanged"), targets, definitions_fold(fold_target)
    )
    return assembled(settings, metrics, Parts([channel], {"definitions": definitions}, targets, dispatcher, groups))


def _is_of_feed(channel: str, request: Request) -> bool:
    """Return whether a request is of the channel. A campaign may have a channel of the same name."""
    return bool(request["channel"] == channel and request.get("campaign") is None)


def _outbox(settings: Settings, registry: Registry, targets: Targets, metrics: Metrics) -> Outbox:
    # A broker that is away for a minute ends the process; its supervisor starts it again.
    config = producer_config(settings.kafka.brokers, **{"message.timeout.ms": 60_000})
    return Outbox(settings, Producer(config), registry, targets, metrics)


def _groups(
    settings: Settings,
    inputs: tuple[MembershipInput, RetryInput],
    share: PartitionShare,
    dispatcher: Dispatcher,
    outbox: Outbox,
    *,
    is_traced: bool,
) -> tuple[Group, Group]:
    """Return the consumer groups of the membership changes and of the retries."""
    consumers = consumer_of(settings, settings.group), consumer_of(settings, settings.retry_group)
    new = _agent((consumers[0], settings.group), inputs[0], share, dispatcher, outbox, is_traced=is_traced)
    retries = _agent((consumers[1], settings.retry_group), inputs[1], share, dispatcher, outbox, is_traced=is_traced)
    return (
        Group(settings.group, settings.membership_topic, new, consumers[0]),
        Group(settings.retry_group, settings.retry_topic, retries, consumers[1]),
    )


def _agent(
    member: tuple[Consumer, str], source: Input, share: PartitionShare, dispatcher: Dispatcher, outbox: Outbox, *, is_traced: bool
) -> Agent:
    """`member`: the consumer and its group."""
    consumer, group = member
    stage = f"{WEBHOOK}-retry" if isinstance(source, RetryInput) else WEBHOOK
    checked, count = partial(check, consumer, stage, source), partial(_count, consumer, group, source, share)
    return Agent(source, consumer, dispatcher, outbox, check=checked, on_partitions=count, traced=is_traced)


def _count(consumer: Consumer, group: str, source: Input, share: PartitionShare, assigned: int) -> None:
    """Note the share of the partitions. The broker is not asked about a revocation, which may be that of a consumer that closes."""
    if not assigned and share.has_counted(group):
        share.assign(group, 0, 0)
        return
    try:
        total = sum(topics_of(consumer, source).values())
    except KafkaException as error:  # the former number stays; the next assignment counts again
        log(__package__).warning("partitions_not_counted", group=group, error=str(error))
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
