"""Pure core: the records that requests become."""

import hashlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from starling_common.headers import Headers, record_headers
from starling_common.kafka.topics import CONSENT, DELIVERY, SUPPRESSIONS
from starling_common.outcome import Refused
from starling_common.records.dead_letters import SourceRecord, dead_letter, dead_letter_headers
from starling_common.records.suppressions import BY_PERSON, STOP, suppression_key
from starling_common.values import deterministic_id, record_key
from starling_messages.details import MACHINE
from starling_messages.links import Callback, Link
from starling_tracker.callbacks.report import Effect, Reply, Report

SERVICE: Final = "tracker"
DEAD_LETTERS: Final = "tracker.dlq"
REPLAY_HEADER: Final = "starling-replay"
"""The header of a request that repeats a dead letter: the proof that the tracker has authenticated it before."""

OPENED: Final = "OPENED"
CLICKED: Final = "CLICKED"
UNSUBSCRIBED: Final = "UNSUBSCRIBED"

PAGE: Final = "page"
ONE_CLICK: Final = "one_click"
PROVIDER: Final = "provider"
"""Sources of a change of consent: the page, the button of a mail client (RFC 8058), and a page of the provider."""

HARD_BOUNCE: Final = "hard_bounce"
COMPLAINT: Final = "complaint"
"""Kinds of suppressions, as in `starling_policy`, which this process does not load."""

_SUPPRESSED: Final[Mapping[Effect, str]] = {Effect.HARD_BOUNCE: HARD_BOUNCE, Effect.COMPLAINT: COMPLAINT, Effect.STOP: STOP}
_SMS: Final = "sms"


class Outgoing(NamedTuple):
    """One record to publish. `profile`: the key that decides about its partition; None for a topic with one partition."""

    topic: str
    key: bytes | None
    record: Mapping[str, Any]
    headers: Headers
    profile: bytes | None


class Source(NamedTuple):
    """The request of a dead letter. `proof`: that it was authenticated."""

    path: str
    workspace: str
    content_type: str | None
    proof: str


def outcome(link: Link, name: str, now_micros: int, *, machine: bool = False) -> dict[str, Any]:
    """Return the `DeliveryReported` of a request. A person unsubscribes from a message once; each open and click counts."""
    instant = "" if name == UNSUBSCRIBED else now_micros
    return {
        "received_at": now_micros,
        "workspace": link.workspace,
        "user_id": link.user_id,
        "event_id": deterministic_id(link.delivery_id, name, "tracker", instant),
        "delivery_id": link.delivery_id,
        "channel": link.channel,
        "target_key": link.target_key,
        "outcome": name,
        "attempt": 0,
        "status_code": None,
        "detail": MACHINE if machine else None,
        "segment_key": None,
        "event_time": now_micros // 1000,
        "correlation_id": link.delivery_id,
        "campaign": link.campaign,
    }


def refusal(link: Link, source: str, now_micros: int) -> dict[str, Any]:
    """Return the `ConsentChanged` by which the person refuses the channel and the purpose of a message."""
    return {
        "received_at": now_micros,
        "workspace": link.workspace,
        "user_id": link.user_id,
        "channel": link.channel,
        "purpose": link.purpose,
        "granted": False,
        "source": source,
        "changed_at": now_micros // 1000,
        "correlation_id": link.delivery_id,
    }


def outcome_key(link: Link) -> bytes:
    """Return the key of an outcome."""
    return record_key(link.workspace, link.user_id)


def consent_key(link: Link) -> bytes:
    """Return the key of a change of consent."""
    return b"%b/%b/%b" % (outcome_key(link), link.channel.encode(), (link.purpose or "").encode())


def of_outcome(link: Link, record: Mapping[str, Any]) -> Outgoing:
    """Return an outcome, to publish."""
    return Outgoing(DELIVERY, outcome_key(link), record, record_headers(link.delivery_id, SERVICE), outcome_key(link))


def of_refusal(link: Link, record: Mapping[str, Any]) -> Outgoing:
    """Return a change of consent, to publish."""
    return Outgoing(CONSENT, consent_key(link), record, record_headers(link.delivery_id, SERVICE), outcome_key(link))


def of_report(callback: Callback, report: Report, now_micros: int) -> list[Outgoing]:
    """Return the records of a provider's report: the outcome, and a suppression or a change of consent.

    A repetition has the same `event_id`, whenever it comes.
    """
    link = callback.link
    at_ms = now_micros // 1000 if report.at_ms is None else min(report.at_ms, now_micros // 1000)
    reported = outcome(link, report.outcome, now_micros, machine=report.by_machine) | {
        "event_id": deterministic_id(link.delivery_id, report.outcome, PROVIDER, _plain(report.event_id)),
        "event_time": at_ms,
        "status_code": report.status_code,
        "soft_bounce": callback.digest if report.effect is Effect.SOFT_BOUNCE else None,
    }
    if report.detail is not None:
        reported["detail"] = report.detail
    records = [of_outcome(link, reported)]
    if report.effect in _SUPPRESSED:
        address = _Address(link.workspace, link.channel, callback.digest)
        is_of_person = report.effect is Effect.STOP
        records.append(_suppression(address, _SUPPRESSED[report.effect], now_micros, link.delivery_id, by_person=is_of_person))
    elif report.effect is Effect.REFUSAL:
        records.append(of_refusal(link, refusal(link, PROVIDER, now_micros)))
    return records


def of_reply(workspace: str, reply: Reply, now_micros: int) -> Outgoing:
    """Return the suppression of a number whose owner has replied STOP, or its end after START."""
    digest = hashlib.sha256(reply.address.strip().lower().encode()).hexdigest()
    address, cause = _Address(workspace, _SMS, digest), deterministic_id(workspace, _plain(reply.message_id))
    return _suppression(address, STOP if reply.stops else None, now_micros, cause, by_person=True)


class _Address(NamedTuple):
    """A suppressed address. `digest`: as in `AddressSuppressed`."""

    workspace: str
    channel: str
    digest: str


def _suppression(address: _Address, kind: str | None, now_micros: int, cause: str, *, by_person: bool) -> Outgoing:
    record = {
        "received_at": now_micros,
        "workspace": address.workspace,
        "channel": address.channel,
        "digest": address.digest,
        "kind": kind,
        BY_PERSON: by_person,
        "changed_at": now_micros // 1000,
        "correlation_id": cause,
    }
    return Outgoing(SUPPRESSIONS, suppression_key(*address, by_person=by_person), record, record_headers(cause, SERVICE), None)


def unknown_message(source: Source, report: Report, reason: str, now_micros: int) -> Outgoing:
    """Return the dead letter of a report that is attributed to no message. Its value is the body of a request with it alone."""
    headers: Headers = [
        ("correlation_id", deterministic_id(source.path, _plain(report.event_id)).encode()),
        (REPLAY_HEADER, source.proof.encode()),
    ]
    if source.content_type is not None:
        headers.append(("content-type", source.content_type.encode("utf-8", "replace")))
    fields = {"workspace": source.workspace}
    refused = SourceRecord(_plain(source.path), -1, -1, None, report.body, headers, now_micros, fields)
    code = "unknown_message" if report.problem is None else "bad_report"
    letter = dead_letter(SERVICE, refused, Refused(code, reason), now_micros // 1000)
    return Outgoing(DEAD_LETTERS, None, letter, dead_letter_headers(SERVICE, refused), None)


def _plain(text: str) -> str:
    """Return a text that UTF-8 can contain."""
    return text.encode("utf-8", "backslashreplace").decode()
