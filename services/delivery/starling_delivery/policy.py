"""Pure core: the messages of a membership change, and the step after each attempt."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from starling_common.records.membership_json import membership_json
from starling_common.values import deterministic_id
from starling_delivery.channel import Again, Answer, Bounced, Delivered, Gone, Impossible, Message, Unknown
from starling_delivery.targets import SEGMENT_IDENTIFY, SEGMENT_TRACK, STANDARD, Target, Targets
from starling_policy.person import HARD_BOUNCE, STOP

Request: TypeAlias = Mapping[str, Any]
"""A DeliveryRequested record."""


def requests_for(change: Mapping[str, Any], targets: Targets, channel: str, now_ms: int) -> list[dict[str, Any]]:
    """Return one DeliveryRequested for each webhook that subscribes to this SegmentMembershipChanged."""
    event = "entered" if change["status"] == "ENTERED" else "exited"
    wanting = [target for target in targets.of(change["workspace"]) if target.wants(change["segment_key"], event)]
    bodies = {name: _text(BODIES[name](membership_json(change))) for name in {target.format for target in wanting}}
    return [_request(change, target, bodies[target.format], channel, now_ms) for target in wanting]


def _request(change: Mapping[str, Any], target: Target, body: str, channel: str, now_ms: int) -> dict[str, Any]:
    return {
        "received_at": change["received_at"],
        "workspace": change["workspace"],
        "user_id": change["user_id"],
        "delivery_id": delivery_id(change["event_id"], target.key),
        "channel": channel,
        "target_key": target.key,
        "address": target.url,
        "payload": body,
        "attempt": 1,
        "first_attempt_at": now_ms,
        "not_before": now_ms,
        "last_error": None,
        "segment_key": change["segment_key"],
        "correlation_id": change["correlation_id"],
        "batch_limit": None,
    }


def delivery_id(event_id: str, target_key: str) -> str:
    """Return the deterministic id of the message about one change to one webhook."""
    return deterministic_id("delivery", event_id, target_key)


def standard_body(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return `{"type", "timestamp", "data"}` with the membership change as `membership_json` returns it."""
    event = "entered" if data["status"] == "ENTERED" else "exited"
    return {"type": f"segment.{event}", "timestamp": data["effective_at"], "data": data}


def track_body(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a `track` call of the Segment specification: "Audience Entered" or "Audience Exited"."""
    properties = ("segment_name", "segment_version", "sequence", "memberships")
    return {
        "type": "track",
        "event": "Audience Entered" if data["status"] == "ENTERED" else "Audience Exited",
        "properties": {"audience_key": data["segment_key"], **{name: data[name] for name in properties}},
        **_common(data),
    }


def identify_body(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return an `identify` call of the Segment specification: a trait with the segment's key that is true for a member."""
    return {"type": "identify", "traits": {data["segment_key"]: data["status"] == "ENTERED"}, **_common(data)}


def _common(data: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "messageId": data["event_id"],
        "userId": data["user_id"],
        "timestamp": data["effective_at"],
        "context": {"traits": data["traits"], "library": {"name": "starling-webhooks", "version": "1"}},
    }


BODIES: Final[Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]]] = {
    STANDARD: standard_body,
    SEGMENT_TRACK: track_body,
    SEGMENT_IDENTIFY: identify_body,
}
"""Format -> function that returns the body of a membership change."""


_text: Final[Callable[[Mapping[str, Any]], str]] = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def message_of(request: Request, message_id: str | None = None) -> Message:
    """Return the message of a request. Its idempotency key is the event id of the membership change.

    `message_id`: that key, if it is known; None: it is read from the payload.
    """
    return Message(
        workspace=request["workspace"],
        user_id=request["user_id"],
        delivery_id=request["delivery_id"],
        message_id=_message_id(json.loads(request["payload"])) if message_id is None else message_id,
        target_key=request["target_key"],
        address=request["address"],
        payload=request["payload"],
        attempt=request["attempt"],
    )


def _message_id(body: Mapping[str, Any]) -> str:
    text: str = body["messageId"] if "messageId" in body else body["data"]["event_id"]
    return text


EXPIRED: Final = "expired"
UNKNOWN: Final = "unknown"
"""The details of outcomes of messages to people: expired before it was sent; the provider may have taken it."""
TARGET_DISABLED: Final = "target_disabled"
"""The detail of the outcome of a message of a campaign whose target has answered 410."""

_POSTPONED: Final = "postponed: "
"""The beginning of the reason of a postponed message."""

_LONGEST_POSTPONEMENT_SECONDS: Final = 1800.0

_LONGEST_RETRY_AFTER_SECONDS: Final = 3600.0
"""The longest Retry-After of a channel. Such a message waits in the longest tier if that is shorter."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """The delays of retries. `delays_seconds[n]` follows attempt n+1; the last delay repeats until the time limit.

    Each different delay is a *tier*, a topic of its own, which is read in order: no retry waits for one with a longer delay.
    """

    delays_seconds: tuple[float, ...]
    give_up_after_seconds: float

    @property
    def tiers(self) -> list[float]:
        """The delays of the tiers, ascending."""
        return sorted(set(self.delays_seconds))

    def delay_seconds(self, request: Request) -> float:
        """Return the delay after the attempt, without jitter."""
        attempt: int = request["attempt"]
        return self.delays_seconds[min(attempt, len(self.delays_seconds)) - 1]

    def next_attempt_ms(self, request: Request, now_ms: int, retry_after_seconds: float | None, jitter: float) -> int | None:
        """Return the time of the next attempt, or None after the time limit.

        `jitter` in [0, 1) scales the delay to 80 % to 120 %, which separates messages that failed together. The delay
        is not shorter than the receiver's Retry-After.
        """
        delay = self.delay_seconds(request) * (0.8 + 0.4 * jitter)
        return self._due_ms(request, now_ms, max(delay, retry_after_seconds or 0.0))

    def tier_for(self, seconds: float) -> float:
        """Return the shortest tier that is not shorter than the delay, or else the longest."""
        return next((tier for tier in self.tiers if tier >= seconds), self.tiers[-1])

    def longest_ms(self, tier: int) -> int:
        """Return the longest time that a message waits in a tier. A record that asks for more would hold up all others in it."""
        longest = self.tiers[tier] * 1.2
        return int(1000 * (max(longest, _LONGEST_RETRY_AFTER_SECONDS) if tier == len(self.tiers) - 1 else longest))

    def next_tier(self, tier: int | None) -> float:
        """Return the tier that follows the tier of a message, up to 30 minutes. None: the message was in no tier."""
        allowed = [seconds for seconds in self.tiers if seconds <= _LONGEST_POSTPONEMENT_SECONDS] or self.tiers[:1]
        return allowed[min(0 if tier is None else tier + 1, len(allowed) - 1)]

    def postponed_ms(self, request: Request, now_ms: int, seconds: float, jitter: float) -> int | None:
        """Return the time at which a message that is not sent now is tried, or None after the time limit."""
        return self._due_ms(request, now_ms, seconds * (0.8 + 0.4 * jitter))

    def paused_ms(self, request: Request, now_ms: int, seconds: float, jitter: float) -> int | None:
        """Return the time at which a message of a paused target is tried, or None after the time limit."""
        return self._due_ms(request, now_ms, seconds * (1.0 + 0.2 * jitter))

    def is_expiring(self, request: Request) -> bool:
        """Return whether the request ends at its `expires_at`, and not at the time limit.

        The limit begins with the first attempt: a message that was never attempted waits until it expires.
        """
        expires_at = request.get("expires_at")
        return expires_at is not None and (request["attempt"] == 1 or expires_at <= self._limit_ms(request))

    def _limit_ms(self, request: Request) -> int:
        return int(request["first_attempt_at"]) + int(self.give_up_after_seconds * 1000)

    def _due_ms(self, request: Request, now_ms: int, delay: float) -> int | None:
        due_ms = now_ms + int(delay * 1000)
        last_ms = request["expires_at"] if self.is_expiring(request) else self._limit_ms(request)
        return due_ms if due_ms <= last_ms else None


@dataclass(frozen=True, slots=True)
class Step:
    """The records to publish after one attempt.

    Shape: `outcome` goes to events.delivery, except None; `retry` to the tier of `tier_seconds`; `dead` is the reason of a dead
           letter; `disable` disables the target; `postponed`: no attempt was made; `suppress`: the kind under which the address is
           suppressed; `soft_bounce`: the address has bounced and may be good, which the messenger counts.
    """

    outcome: str | None
    detail: str | None = None
    status_code: int | None = None
    retry: Mapping[str, Any] | None = None
    tier_seconds: float = 0.0
    dead: str | None = None
    disable: bool = False
    postponed: bool = False
    suppress: str | None = None
    soft_bounce: bool = False


def after(request: Request, answer: Answer, schedule: Schedule, now_ms: int, jitter: float) -> Step:
    """Return the step after an attempt."""
    match answer:
        case Delivered(status_code):
            return Step("DELIVERED", status_code=status_code)
        case Gone(why, status_code):
            return Step("FAILED", why, status_code, dead=why, disable=True)
        case Impossible(why, status_code) | Bounced(why, status_code):
            return Step("FAILED", why, status_code, dead=why)
        case Unknown(why):  # a second arrival does no harm: the receiver knows the id
            return after(request, Again(why), schedule, now_ms, jitter)
        case Again(why, status_code, retry_after_seconds):
            due_ms = schedule.next_attempt_ms(request, now_ms, retry_after_seconds, jitter)
            if due_ms is None:
                ended = Step("FAILED", why, status_code, dead=f"given up after {request['attempt']} attempts: {why}")
                return Step("FAILED", EXPIRED) if schedule.is_expiring(request) else ended
            tier = schedule.tier_for(max(schedule.delay_seconds(request), retry_after_seconds or 0.0))
            retry = dict(request) | {"attempt": request["attempt"] + 1, "not_before": due_ms, "last_error": why}
            return Step("RETRYING", why, status_code, retry=retry, tier_seconds=tier)


def after_message(request: Request, answer: Answer, schedule: Schedule, now_ms: int, jitter: float) -> Step:
    """Return the step after an attempt to send a message to a person, which must not arrive twice.

    The time limit of the schedule begins with the first attempt.
    """
    match answer:
        case Delivered(status_code):
            return Step("SENT", status_code=status_code)
        case Unknown():
            return Step("FAILED", UNKNOWN)
        case Bounced(why, status_code, is_hard, by_person):
            kind = STOP if by_person else HARD_BOUNCE
            return Step("BOUNCED", why, status_code, suppress=kind if is_hard else None, soft_bounce=not is_hard)
        case Again():
            # Counted as attempted before the limits are compared.
            begun = request if request["attempt"] > 1 else {**request, "first_attempt_at": now_ms}
            return after(begun, answer, schedule, now_ms, jitter)
        case Impossible() | Gone():
            return after(request, answer, schedule, now_ms, jitter)


def after_repeatable(request: Request, answer: Answer, schedule: Schedule, now_ms: int, jitter: float) -> Step:
    """Return the step after an attempt to send a message of a campaign to a system that knows repeated ones by their id."""
    match answer:
        case Delivered(status_code):
            return Step("DELIVERED", status_code=status_code)
        case Unknown(why):
            return after_message(request, Again(why), schedule, now_ms, jitter)
        case _:
            return after_message(request, answer, schedule, now_ms, jitter)


def postponed(request: Request, why: str, tier: int | None, schedule: Schedule, now_ms: int, jitter: float) -> Step:
    """Return the step of a message that is not sent now. It costs no attempt.

    Each postponement in a row is one tier longer. The first one is reported.
    """
    seconds = schedule.next_tier(tier)
    due_ms = schedule.postponed_ms(request, now_ms, seconds, jitter)
    return _postponed(request, why, seconds, due_ms, is_expiring=schedule.is_expiring(request))


def paused(request: Request, why: str, seconds: float, schedule: Schedule, now_ms: int, jitter: float) -> Step:
    """Return the step of a message whose target is paused for so many seconds. It costs no attempt.

    The message is due after the pause; `jitter` in [0, 1) adds up to a fifth, so that not all messages come at its end.
    """
    due_ms = schedule.paused_ms(request, now_ms, seconds, jitter)
    return _postponed(request, why, schedule.tier_for(seconds), due_ms, is_expiring=schedule.is_expiring(request))


def _postponed(request: Request, why: str, seconds: float, due_ms: int | None, *, is_expiring: bool) -> Step:
    reason = f"{_POSTPONED}{why}"
    if due_ms is None and is_expiring:
        return Step("FAILED", EXPIRED)
    if due_ms is None:
        return Step("FAILED", reason, dead=f"given up after {request['attempt'] - 1} attempts: {why}")
    outcome = None if (request["last_error"] or "").startswith(_POSTPONED) else "RETRYING"
    retry = dict(request) | {"not_before": due_ms, "last_error": reason}
    return Step(outcome, reason, retry=retry, tier_seconds=seconds, postponed=True)


def delayed(request: Request, schedule: Schedule, now_ms: int) -> Step:
    """Return the step of a retry that is read from outside of the tiers before it is due: it waits in a tier, and not longer."""
    seconds = schedule.tier_for((request["not_before"] - now_ms) / 1000)
    last_ms = now_ms + int(seconds * 1000)
    return Step(None, retry=dict(request) | {"not_before": min(request["not_before"], last_ms)}, tier_seconds=seconds)
