"""Core: a callback becomes records: it is authenticated, read, and each report attributed to its message."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from cryptography.x509 import Certificate

from starling_common.telemetry.logs import log
from starling_messages.links import TEST, Callback, Links
from starling_tracker.callbacks import dsn, sendgrid, ses, twilio
from starling_tracker.callbacks.report import Parsed, Reply, Report
from starling_tracker.callbacks.targets import CallbackTarget, Provider
from starling_tracker.machines import HeaderOf
from starling_tracker.records import REPLAY_HEADER, Outgoing, Source, of_reply, of_report, unknown_message

UNKNOWN: Final = "unknown"
IGNORED: Final = "ignored"
REPEATED: Final = "repeated"
"""In place of an outcome in the metric: a report that became a dead letter, has no meaning, or was published before."""

STOPPED: Final = "stopped"
STARTED: Final = "started"
"""In place of an outcome in the metric: a person has replied STOP or START."""

_MOST_PUBLISHED: Final = 50_000


class Incoming(NamedTuple):
    """A request of a provider. `path`: as requested, with the query. `urls`: what its URL may be outside of a proxy."""

    path: str
    query: str
    urls: Sequence[str]
    header: HeaderOf
    body: bytes


@dataclass
class Received:
    """What a request causes. `outcomes`: for the metric. `refused`: why reports are attributed to no message.

    `ids`: what identifies its reports in a repetition. `is_text`: a person has sent it.
    """

    records: list[Outgoing] = field(default_factory=list)
    ids: list[object] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    is_replay: bool = False
    is_text: bool = False


class Fetching(Protocol):
    """Requests at the hosts of a provider."""

    async def certificate(self, url: str, workspace: str) -> Certificate:
        """Return a certificate. Raises: NotReached, Unauthorised."""

    async def confirm(self, url: str, workspace: str) -> None:
        """Confirm a subscription. Raises: NotReached."""


class Receiver:
    """Reads callbacks. It publishes nothing.

    A repetition that another process published has the same event ids; what this one published is not published again, because
    segments count each event.
    """

    def __init__(self, links: Links, fetching: Fetching, now_micros: Callable[[], int]) -> None:
        self._published: dict[object, None] = {}
        """The newest ids of reports that the broker has, the oldest first."""
        self._links = links
        self._fetching = fetching
        self._now_micros = now_micros

    async def receive(self, target: CallbackTarget, incoming: Incoming) -> Received:
        """Return the records of a request. Raises: Malformed, Unauthorised, NotReached."""
        is_replay = self._is_replay(incoming)
        parsed = await self._parsed(target, incoming, is_replay=is_replay)
        now, received = self._now_micros(), Received(is_replay=is_replay, is_text=parsed.is_text)
        received.outcomes += [IGNORED] * parsed.ignored
        for report in parsed.reports:
            self._add(target, incoming, report, now, received)
        if parsed.reply is not None:
            self._add_reply(target, parsed.reply, now, received)
        return received

    def published(self, received: Received) -> None:
        """Note that the broker has the records."""
        for identifier in received.ids:
            self._published[identifier] = None
        while len(self._published) > _MOST_PUBLISHED:
            del self._published[next(iter(self._published))]

    def _is_replay(self, incoming: Incoming) -> bool:
        proof = incoming.header(REPLAY_HEADER)
        return bool(proof) and self._links.proves(proof or "", _proven(incoming.path, incoming.body))

    async def _parsed(self, target: CallbackTarget, incoming: Incoming, *, is_replay: bool) -> Parsed:
        body, header = incoming.body, incoming.header
        match target.provider:
            case Provider.SES:
                return await self._notified(target, body, is_replay=is_replay)
            case Provider.SENDGRID:
                if not is_replay:
                    sendgrid.check_signature(header, body, target.credential, time.time())
                return sendgrid.reports_of(body)
            case Provider.TWILIO:
                fields = twilio.fields_of(body)
                if not is_replay:
                    twilio.check_signature(header(twilio.SIGNATURE), incoming.urls, fields, target.credential)
                return twilio.reports_of(fields, incoming.query, body)
            case Provider.DSN:
                if not is_replay:
                    dsn.check_secret(header("authorization"), target.credential)
                return dsn.reports_of(body)

    async def _notified(self, target: CallbackTarget, body: bytes, *, is_replay: bool) -> Parsed:
        envelope, topic, workspace = ses.envelope_of(body), target.credential, target.place.workspace
        if not is_replay:
            url = ses.certificate_url(envelope, topic)
            ses.check_signature(envelope, await self._fetching.certificate(url, workspace), ses.now_utc())
        if envelope["Type"] == ses.ENDED:
            log(__name__).warning("subscription_ended", target="/".join(target.place), topic=topic)
        if envelope["Type"] == ses.CONFIRMATION:
            await self._fetching.confirm(ses.confirmation_url(envelope, topic), workspace)
            log(__name__).info("subscription_confirmed", target="/".join(target.place), topic=topic)
        return ses.reports_of(envelope, body)

    def _add(self, target: CallbackTarget, incoming: Incoming, report: Report, now: int, received: Received) -> None:
        if report.token == TEST:
            received.outcomes.append(IGNORED)
            return
        callback = None if report.token is None else self._links.read_callback(report.token)
        refused = report.problem or _refusal(target, report, callback)
        if refused is not None or callback is None:
            received.refused.append(refused or "")
            received.outcomes.append(UNKNOWN)
            proof = self._links.proof(_proven(incoming.path, report.body))
            source = Source(incoming.path, target.place.workspace, incoming.header("content-type"), proof)
            received.records.append(unknown_message(source, report, refused or "", now))
            return
        records = of_report(callback, report, now)
        if records[0].record["event_id"] in self._published:
            received.outcomes.append(REPEATED)
            return
        received.ids.append(records[0].record["event_id"])
        received.outcomes.append(report.outcome)
        received.records += records

    def _add_reply(self, target: CallbackTarget, reply: Reply, now: int, received: Received) -> None:
        """Add what a reply causes. A repeated START must not end the suppression of a later STOP."""
        identifier = (target.place, reply.message_id)
        if identifier in self._published:
            received.outcomes.append(REPEATED)
            return
        received.ids.append(identifier)
        received.outcomes.append(STOPPED if reply.stops else STARTED)
        received.records.append(of_reply(target.place.workspace, reply, now))


def _refusal(target: CallbackTarget, report: Report, callback: Callback | None) -> str | None:
    """Return why a report is attributed to no message; None if it is of a message of the target."""
    if report.token is None:
        return (
            "the report names no message: another system sent it through the same account, or the channel ran without "
            "STARLING_LINKS__KEYS"
        )
    if callback is None:
        return "none of the keys in STARLING_LINKS__KEYS has written the token of the report: list the former key, then replay it"
    link = callback.link
    if (link.workspace, link.target_key) != target.place:
        return f"the message was sent through the target {link.target_key!r}: correct the address of its provider's callbacks"
    return None


def _proven(path: str, body: bytes) -> bytes:
    """Return what the proof of a dead letter covers: it is of one address and one body."""
    return path.encode("utf-8", "surrogatepass") + b"\n" + body
