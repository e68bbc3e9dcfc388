"""Pure core: the records that effects become."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from starling_campaigns.channels import SENT_CHANNELS
from starling_campaigns.definitions.campaign import Campaign
from starling_campaigns.definitions.triggers import BroadcastTrigger
from starling_common.headers import record_headers
from starling_common.kafka.topics import CAMPAIGN_PROGRESS, DELIVERY, SUPPRESSIONS, bulk_topic, request_topic
from starling_common.records.suppressions import suppression_key
from starling_common.settings import Clock
from starling_common.values import deterministic_id
from starling_common.wire import Codec
from starling_messages.effects import Effect, Report, Request, Step, Suppress
from starling_messages.person.addressee import Addressee
from starling_messages.state import HELD_OUT, PersonState
from starling_policy.bounds import DAY_MS
from starling_stream.model.processor import Unit

STAGE: Final = "messenger"
REQUEST_TOPICS: Final[Mapping[str, str]] = {channel: request_topic(channel) for channel in sorted(SENT_CHANNELS)}
"""Channel -> the topic of its requests. A campaign of any other channel cannot be activated."""
BULK_TOPICS: Final[Mapping[str, str]] = {channel: bulk_topic(channel) for channel in sorted(SENT_CHANNELS)}
"""Channel -> the topic of its requests of broadcasts: those of triggers never wait behind them."""


@dataclass(frozen=True, slots=True)
class Formats:
    """The codecs of the outputs."""

    request: Codec
    report: Codec
    progress: Codec
    suppression: Codec


class Emitter:
    """Emits the effects of one person's unit of work."""

    def __init__(self, formats: Formats) -> None:
        self._formats = formats

    def emit(self, key: bytes, person: Addressee, now_micros: int, unit: Unit[PersonState]) -> None:
        """Emit the effects in their order. `now_micros`: wall clock."""
        for effect in person.effects:
            topic, value, correlation_id = self._encoded(effect, person, now_micros)
            place = _address_key(effect, person) if isinstance(effect, Suppress) else key
            unit.emit(topic, place, value, now_micros, record_headers(correlation_id, STAGE))
        person.effects.clear()

    def _encoded(self, effect: Effect, person: Addressee, now_micros: int) -> tuple[str, bytes, str]:
        common = {"received_at": now_micros, "workspace": person.workspace, "user_id": person.user_id}
        match effect:
            case Request():
                topic = _topic_of(effect.in_force.campaign)
                return (
                    topic,
                    self._formats.request.encode(common | _request(effect, now_micros // 1000)),
                    effect.origin.correlation_id,
                )
            case Report():
                report = common | _report(effect, now_micros // 1000)
                return DELIVERY, self._formats.report.encode(report), effect.message.correlation_id
            case Step():
                return CAMPAIGN_PROGRESS, self._formats.progress.encode(common | _step(effect)), effect.message.correlation_id
            case Suppress():
                suppressed = _suppression(effect, person, now_micros)
                return SUPPRESSIONS, self._formats.suppression.encode(suppressed), effect.message.correlation_id


def _topic_of(campaign: Campaign) -> str:
    topics = BULK_TOPICS if isinstance(campaign.trigger, BroadcastTrigger) else REQUEST_TOPICS
    return topics[campaign.rules.channel]


def _request(request: Request, now_ms: int) -> dict[str, Any]:
    campaign = request.in_force.campaign
    locale = request.traits.get("locale")
    event = request.event or "null"
    return {
        "delivery_id": request.delivery_id,
        "channel": campaign.rules.channel,
        "target_key": campaign.target,
        "address": request.address,
        "payload": "",
        "attempt": 1,
        "first_attempt_at": now_ms,
        "not_before": now_ms,
        "last_error": None,
        "segment_key": None,
        "correlation_id": request.origin.correlation_id,
        "batch_limit": None,
        "campaign": campaign.key,
        "version": request.in_force.version,
        "variant": request.variant,
        "locale": locale if isinstance(locale, str) else None,
        "purpose": campaign.rules.purpose,
        "sequence": request.origin.sequence,
        "device": request.device,
        "context": f'{{"event":{event},"traits":{json.dumps(request.traits, ensure_ascii=False)}}}',
        "expires_at": now_ms + request.remaining_ms,
    }


def _report(report: Report, now_ms: int) -> dict[str, Any]:
    message, campaign = report.message, report.in_force.campaign
    delivery_id = message.delivery_ids[0]
    return {
        "event_id": deterministic_id(delivery_id, report.outcome, "messenger"),
        "delivery_id": delivery_id,
        "channel": campaign.rules.channel,
        "target_key": campaign.target,
        "outcome": report.outcome,
        "attempt": 0,
        "status_code": None,
        "detail": report.reason,
        "segment_key": None,
        "event_time": now_ms,
        "correlation_id": message.correlation_id,
        "campaign": campaign.key,
    }


def _step(step: Step) -> dict[str, Any]:
    message = step.message
    return {
        "delivery_id": message.delivery_ids[0],
        "campaign": message.campaign,
        "instance": message.instance,
        "version": message.version,
        "variant": message.variant,
        "step": step.name,
        "reason": step.reason,
        "due_at": message.due_at,
        "decided_at": message.decided_at,
        "at": step.at,
        "value": step.value,
        "day": message.decided_at // DAY_MS if message.day is None else message.day,
        "held_out": message.status == HELD_OUT,
        "is_first": message.is_first,
        "correlation_id": message.correlation_id,
    }


def _suppression(suppress: Suppress, person: Addressee, now_micros: int) -> dict[str, Any]:
    return {
        "received_at": now_micros,
        "workspace": person.workspace,
        "channel": suppress.channel,
        "digest": suppress.digest,
        "kind": suppress.kind,
        "changed_at": now_micros // 1000,
        "correlation_id": suppress.message.correlation_id,
    }


def _address_key(suppress: Suppress, person: Addressee) -> bytes:
    return suppression_key(person.workspace, suppress.channel, suppress.digest)


def outcome_instant(event_time_ms: int, clock: Clock, stream_time_ms: int) -> int:
    """Return when an outcome happened: as reported, or under the event clock the stream time, which channels do not know."""
    return event_time_ms if clock is Clock.WALL else max(0, stream_time_ms)
