"""Edge: the process of the channels of campaigns: messages to people, each recorded in a transaction."""

from collections.abc import Mapping
from functools import partial

from confluent_kafka import Producer
from prometheus_client import REGISTRY

from starling_common.failpoints.ending import Ending
from starling_common.kafka.clients import producer_config
from starling_common.records.definitions import definitions_fold
from starling_common.retries import retrying
from starling_common.telemetry.metrics import Metrics
from starling_common.time.instants import wall_clock_ms
from starling_common.wire import RecordReader, Registry, RegistryUnavailable
from starling_delivery.agents import Agent, Input
from starling_delivery.channels import CAMPAIGN_CHANNELS
from starling_delivery.channels.http import BoundedChannel
from starling_delivery.failpoints import FAILPOINTS
from starling_delivery.messages.definitions import Definitions, fold_definition
from starling_delivery.messages.inputs import MessageRetryInput, RequestInput
from starling_delivery.messages.last_look import LastLook
from starling_delivery.messages.ledger import TRANSACTION_MS, Ledger, Source
from starling_delivery.messages.refusals import CONSENT_MS, RecentConsent, Suppressions, fold_consent, fold_suppression, of_channels
from starling_delivery.messages.steps import MessageSteps
from starling_delivery.policy import Request
from starling_delivery.progress import EXACT_SPAN, Positions
from starling_delivery.sending.dispatch import Dispatcher
from starling_delivery.sending.routing import Routed
from starling_delivery.sending.semantics import semantics_of
from starling_delivery.settings import EMAIL, EmailSettings
from starling_delivery.wiring.assembly import Parts, assembled
from starling_delivery.wiring.clients import REGISTRY_SECONDS, consumer_of, folded, sealer
from starling_delivery.wiring.inputs import check, retry_input
from starling_delivery.wiring.process import Delivery, Group, View, WatchedConsumer
from starling_delivery.wiring.sending import dispatcher_of, traced, traces_of


def build_campaigns(settings: EmailSettings) -> Delivery:
    """Return the process, with its health server started. Raises: as `build`."""
    metrics, definitions = Metrics(REGISTRY), Definitions(sealer=sealer(settings))
    passed = Ending(settings.failpoint, FAILPOINTS).passed
    channels = {
        name: BoundedChannel(CAMPAIGN_CHANNELS[name](settings, definitions, passed), settings.timeout_seconds)
        for name in settings.channels
    }
    suppressions: Mapping[str, Suppressions] = {name: Suppressions(name) for name in channels}
    consent: Mapping[str, RecentConsent] = {name: RecentConsent(name) for name in channels}
    registry = Registry(settings.registry.url)
    inputs = _inputs(settings, registry, definitions, channels)
    consumers = consumer_of(settings, settings.group), consumer_of(settings, settings.retry_group)
    positions = Positions(EXACT_SPAN), Positions(EXACT_SPAN)
    ledger = Ledger(_transactional_producer(settings), [Source(*one) for one in zip(positions, consumers, strict=True)])
    steps = MessageSteps(settings, ledger, registry, definitions, metrics)
    traces = traces_of(settings, EMAIL)

    def routed(channel: BoundedChannel) -> Dispatcher:
        name = channel.name
        look = LastLook(definitions, suppressions[name], consent[name], channel.hold, channel.unsubscribe_link)
        semantics = traced(semantics_of(channel.semantics, look, steps, passed), traces, name)
        return dispatcher_of(settings, channel, (definitions, None), semantics, steps, metrics)

    dispatcher = Routed({name: routed(channel) for name, channel in channels.items()})
    is_traced = traces is not None
    new = _agent((inputs[0], consumers[0], EMAIL), positions[0], dispatcher, steps, is_traced=is_traced)
    retries = _agent((inputs[1], consumers[1], f"{EMAIL}-retry"), positions[1], dispatcher, steps, is_traced=is_traced)
    groups = (
        Group(settings.group, inputs[0].topics[0], new, consumers[0]),
        Group(settings.retry_group, settings.retry_topic, retries, consumers[1]),
    )
    views = _views(settings, registry, definitions, suppressions, consent)
    return assembled(settings, metrics, Parts(list(channels.values()), views, definitions, dispatcher, groups, ledger))


def _inputs(
    settings: EmailSettings, registry: Registry, definitions: Definitions, channels: Mapping[str, BoundedChannel]
) -> tuple[RequestInput, MessageRetryInput]:
    """Return the inputs of new requests and of retries. Waits for the registry."""
    request_topics, bulk_topics = list(settings.request_topics.values()), list(settings.bulk_topics.values())
    # The topics of all channels have one schema.
    requests = RecordReader(retrying(REGISTRY_SECONDS)(RegistryUnavailable, registry.codec, request_topics[0], "DeliveryRequested"))
    retries = RecordReader(registry.codec(settings.retry_topic, "DeliveryRequested"))

    def of_campaign(request: Request) -> bool:
        return request["channel"] in channels and request.get("campaign") is not None

    return (
        RequestInput([*request_topics, *bulk_topics], requests, channels.keys(), definitions, frozenset(bulk_topics)),
        MessageRetryInput(retry_input(settings, retries, of_campaign), definitions),
    )


def _agent(
    read: tuple[Input, WatchedConsumer, str], positions: Positions, dispatcher: Routed, steps: MessageSteps, *, is_traced: bool
) -> Agent:
    """`read`: an input, its consumer and its stage; `positions`: those that the transactions commit."""
    source, consumer, stage = read
    return Agent(
        source,
        consumer,
        dispatcher,
        steps,
        check=partial(check, consumer, stage, source),
        positions=positions,
        commits=False,
        traced=is_traced,
    )


def _views(
    settings: EmailSettings,
    registry: Registry,
    definitions: Definitions,
    suppressions: Mapping[str, Suppressions],
    consent: Mapping[str, RecentConsent],
) -> Mapping[str, View]:
    """Return the folded topics by which the last look decides."""
    since_ms = wall_clock_ms() - CONSENT_MS
    return {
        "definitions": folded(
            settings, registry, (settings.definitions_topic, "DefinitionChanged"), definitions, definitions_fold(fold_definition)
        ),
        "suppressions": folded(
            settings, registry, (settings.suppressions_topic, "AddressSuppressed"), suppressions, of_channels(fold_suppression)
        ),
        "consent": folded(
            settings, registry, (settings.consent_topic, "ConsentChanged"), consent, of_channels(fold_consent), since_ms
        ),
    }


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
