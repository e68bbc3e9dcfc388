"""Pure core: the messages of a membership change, and the step after each attempt."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from starling_common.records.membership_json import membership_json
from starling_common.values import deterministic_id
from starling_delivery.channel import Again, Answer, Delivered, Gone, Impossible, Message
from starling_delivery.targets import Target, Targets

Request: TypeAlias = Mapping[str, Any]
"""A DeliveryRequested record."""


def requests_for(change: Mapping[str, Any], targets: Targets, channel: str, now_ms: int) -> list[dict[str, Any]]:
    """Return one DeliveryRequested for each webhook that subscribes to this SegmentMembershipChanged."""
    event = "entered" if change["status"] == "ENTERED" else "exited"
    wanting = [target for target in targets.of(change["workspace"]) if target.wants(change["segment_key"], event)]
    return [_request(change, target, event, channel, now_ms) for target in wanting]


def _request(change: Mapping[str, Any], target: Target, event: str, channel: str, now_ms: int) -> dict[str, Any]:
    return {
        "received_at": change["received_at"],
        "workspace": change["workspace"],
        "user_id": change["user_id"],
        "delivery_id": delivery_id(change["event_id"], target.key),
        "channel": channel,
        "target_key": target.key,
        "address": target.url,
        "payload": webhook_body(change, event),
        "attempt": 1,
        "first_attempt_at": now_ms,
        "not_before": now_ms,
        "last_error": None,
        "segment_key": change["segment_key"],
        "correlation_id": change["correlation_id"],
    }


def delivery_id(event_id: str, target_key: str) -> str:
    """Return the deterministic id of the message about one change to one webhook."""
    return deterministic_id("delivery", event_id, target_key)


def webhook_body(change: Mapping[str, Any], event: str) -> str:
    """Return `{"type", "timestamp", "data"}`: the membership record as JSON, instants in ISO 8601, traits as an object."""
    data = membership_json(change)
    body = {"type": f"segment.{event}", "timestamp": data["effective_at"], "data": data}
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False)


def message_of(request: Request) -> Message:
    """Return the message of a request. Its idempotency key is the event id of the membership change."""
    return Message(
        workspace=request["workspace"],
        user_id=request["user_id"],
        delivery_id=request["delivery_id"],
        message_id=json.loads(request["payload"])["data"]["event_id"],
        target_key=request["target_key"],
        address=request["address"],
        payload=request["payload"],
        attempt=request["attempt"],
    )


@dataclass(frozen=True, slots=True)
class Schedule:
    """The delays of retries. `delays_seconds[n]` follows attempt n+1; the last delay repeats until the time limit."""

    delays_seconds: tuple[float, ...]
    give_up_after_seconds: float

    def next_attempt_ms(self, request: Request, now_ms: int, retry_after_seconds: float | None, jitter: float) -> int | None:
        """Return the time of the next attempt, or None after the time limit.

        `jitter` in [0, 1) scales the delay to 80 % to 120 %, which separates messages that failed together. The delay
        is not shorter than the receiver's Retry-After.
        """
        delay = self.delays_seconds[min(request["attempt"], len(self.delays_seconds)) - 1] * (0.8 + 0.4 * jitter)
        due_ms = now_ms + int(max(delay, retry_after_seconds or 0.0) * 1000)
        last_ms = int(request["first_attempt_at"]) + int(self.give_up_after_seconds * 1000)
        return due_ms if due_ms <= last_ms else None


@dataclass(frozen=True, slots=True)
class Step:
    """The records to publish after one attempt.

    Shape: `outcome` goes to events.delivery; `retry` to delivery.retry; `dead` is the reason of a dead letter;
           `disable` disables the target.
    """

    outcome: str
    detail: str | None = None
    status_code: int | None = None
    retry: Mapping[str, Any] | None = None
    dead: str | None = None
    disable: bool = False


def after(request: Request, answer: Answer, schedule: Schedule, now_ms: int, jitter: float) -> Step:
    """Return the step after an attempt."""
    match answer:
        case Delivered(status_code):
            return Step("DELIVERED", status_code=status_code)
        case Gone(why, status_code):
            return Step("FAILED", why, status_code, dead=why, disable=True)
        case Impossible(why, status_code):
            return Step("FAILED", why, status_code, dead=why)
        case Again(why, status_code, retry_after_seconds):
            due_ms = schedule.next_attempt_ms(request, now_ms, retry_after_seconds, jitter)
            if due_ms is None:
                return Step("FAILED", why, status_code, dead=f"given up after {request['attempt']} attempts: {why}")
            retry = dict(request) | {"attempt": request["attempt"] + 1, "not_before": due_ms, "last_error": why}
            return Step("RETRYING", why, status_code, retry=retry)
