"""Adapter: publishes the steps of messages to people, each in a transaction with the progress of its record."""

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from confluent_kafka import KafkaException, Message

from starling_common.cassandra.read_models import TARGET
from starling_common.outcome import Refused
from starling_common.records.dead_letters import source_record
from starling_common.records.definitions import Disabled, disabled_record
from starling_common.records.suppressions import BY_PERSON, STOP, suppression_key
from starling_common.telemetry.logs import log
from starling_common.telemetry.metrics import Metrics
from starling_common.time.instants import wall_clock_micros, wall_clock_ms
from starling_common.values import record_key
from starling_common.wire import Registry
from starling_delivery.item import Item
from starling_delivery.messages.definitions import Definitions
from starling_delivery.messages.ledger import Entry, Ledger
from starling_delivery.policy import Request, Step
from starling_delivery.progress import Origin
from starling_delivery.records import PRODUCED_BY, Output, Records, Topics, output
from starling_policy import address_digest

SENDING: Final = Step("SENDING")
"""The step before an attempt."""


class MessageTopics(Topics, Protocol):
    """The names of the topics, with those of the definitions and the suppressions."""

    @property
    def definitions_topic(self) -> str:
        """The topic of the campaigns and targets."""

    @property
    def suppressions_topic(self) -> str:
        """The topic of the suppressed addresses."""


class MessageSteps:
    """Encodes steps in the event loop; the ledger commits them."""

    def __init__(
        self, topics: MessageTopics, ledger: Ledger, registry: Registry, definitions: Definitions, metrics: Metrics
    ) -> None:
        """Raises: SchemaMissing, RegistryUnavailable."""
        self._topics = topics
        self._definitions = definitions
        self._ledger = ledger
        self._records = Records(topics, registry, metrics)
        self._suppressed = registry.codec(topics.suppressions_topic, "AddressSuppressed")
        self._definition = registry.codec(topics.definitions_topic, "DefinitionChanged")
        self._attempts = metrics.counter("starling_delivery_attempts_total")

    async def claim(self, item: Item) -> bool:
        """Store the report SENDING and the progress of the record in one transaction. Return False if another process has it."""
        decided: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        outputs = self._records.of_step(item.request, SENDING, item.traceparent)
        self._ledger.put(Entry(outputs, item.origin, partial(_decide, decided), self._instead(item)))
        item.origin = None
        return await decided

    def record(self, item: Item, step: Step, stored: Callable[[], None]) -> None:
        """Publish the outcome of one step, with its retry, dead letter, suppressed address or disabled target."""
        request = item.request
        outputs = self._records.of_step(request, step, item.traceparent)
        if step.suppress is not None:
            outputs.append(self._suppression(request, step.suppress))
        # A test has no effect beyond itself, as that of a webhook.
        if step.disable and not request.get("is_test"):
            outputs += self._disabled(request, step.detail or "")
        self._ledger.put(Entry(outputs, item.origin, lambda _: stored(), self._instead(item)))
        if step.outcome is not None and not step.postponed:
            self._attempts.labels(request["channel"], step.outcome).inc()

    def refuse(self, item: Item, why: Refused, stored: Callable[[], None]) -> None:
        """Publish the dead letter of a request that cannot be processed."""
        self._ledger.put(Entry([self._records.letter_of(item.request, why)], item.origin, lambda _: stored()))

    def bury(self, message: Message, why: Refused, origin: Origin) -> None:
        """Publish a record that cannot be decoded to the dead letters, unchanged, and complete it."""
        self._ledger.put(Entry([self._records.letter(source_record(message), why)], origin, lambda _: None))

    def check(self) -> None:
        """Raise what has ended the transactions."""
        self._ledger.check()

    def flush(self) -> None:
        """Wait until everything is committed."""
        self._ledger.flush()

    def _instead(self, item: Item) -> Callable[[KafkaException], Output]:
        return partial(self._records.letter_instead, item.request)

    def _disabled(self, request: Request, why: str) -> list[Output]:
        workspace, campaign = request["workspace"], self._definitions.campaign(request["workspace"], request["campaign"])
        target = self._definitions.find(workspace, request["target_key"] if campaign is None else campaign.target)
        if target.target is None or target.disabled:
            return []
        disabled = Disabled(TARGET, workspace, target.key, target.version, json.loads(target.document))
        record = disabled_record(disabled, why, request["correlation_id"], PRODUCED_BY, wall_clock_micros())
        made = output(self._topics.definitions_topic, self._definition, record_key(workspace, target.key), record, request)
        log(__name__).warning("target_disabled", workspace=workspace, target=target.key, reason=why)
        self._definitions.disable(workspace, target.key)  # in this process now, in others when they read the topic
        return [made]

    def _suppression(self, request: Request, kind: str) -> Output:
        digest, is_of_person = address_digest(request["address"]), kind == STOP
        record = {
            "received_at": wall_clock_micros(),
            "workspace": request["workspace"],
            "channel": request["channel"],
            "digest": digest,
            "kind": kind,
            BY_PERSON: is_of_person,
            "changed_at": wall_clock_ms(),
            "correlation_id": request["correlation_id"],
        }
        key = suppression_key(request["workspace"], request["channel"], digest, by_person=is_of_person)
        return output(self._topics.suppressions_topic, self._suppressed, key, record, request)


def _decide(decided: asyncio.Future[bool], is_granted: bool) -> None:
    if not decided.done():
        decided.set_result(is_granted)
