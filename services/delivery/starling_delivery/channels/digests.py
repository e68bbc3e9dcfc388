"""Adapter: the channels of digests: one POST to the incoming webhook of Slack, or of a workflow of Teams."""

from typing import Final, Self

from starling_campaigns.channels import SLACK, TEAMS
from starling_common.http.outbound.addresses import AddressRefused
from starling_common.http.outbound.connections import WORKSPACE
from starling_common.http.outbound.sessions import GuardedSession
from starling_delivery.channel import Again, Answer, Delivered, Gone, Impossible, Message, Unknown
from starling_delivery.channels.http import Http1Client, HttpAnswer, HttpClient, MaybeSent, NotSent, end_attempt_in
from starling_delivery.settings import FeedSettings

_GONE: Final = frozenset({404, 410})
"""The webhook was removed, or its channel was archived."""
_BUSY: Final = frozenset({408, 429})
"""The endpoint has not taken the request."""
_CONNECTIONS: Final = 64
_MOST_TEXT: Final = 120


class DigestChannel:
    """POSTs the body of a message as JSON, as it is. Redirects are not followed, and no connection reaches a private network."""

    def __init__(self, name: str, http: HttpClient, deadline_seconds: float) -> None:
        """`name`: the channel of the targets. `deadline_seconds`: of a whole attempt."""
        self.name = name
        self._http = http
        self._deadline_seconds = deadline_seconds

    @classmethod
    def open(cls, name: str, settings: FeedSettings) -> Self:
        """Return a channel with its own HTTP client. Used from one event loop only."""
        session = GuardedSession(
            lookup_seconds=settings.lookup_timeout_seconds,
            connections=_CONNECTIONS,
            allow_private=settings.allow_private_addresses,
        )
        http = Http1Client(session, allow_private=settings.allow_private_addresses)
        return cls(name, http, settings.timeout_seconds)

    async def send(self, message: Message) -> Answer:
        """Make one attempt and return its result."""
        WORKSPACE.set(message.workspace)
        end_attempt_in(self._deadline_seconds)
        try:
            answer = await self._http.post(message.address, message.payload, {"content-type": "application/json; charset=utf-8"})
        except NotSent as error:
            return Again(str(error))
        except MaybeSent as error:
            return Unknown(str(error))
        except AddressRefused as refused:
            return Impossible(str(refused))
        return answer_of(answer)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()


def answer_of(answer: HttpAnswer) -> Answer:
    """Return the result of a response. The reason contains the beginning of its text, in which Slack and Teams name the error."""
    status = answer.status
    if answer.ok:
        return Delivered(status)
    text = "".join(one if one.isprintable() else " " for one in answer.body[:_MOST_TEXT].decode(errors="replace")).strip()
    why = f"the endpoint answered {status}" + (f": {text}" if text else "")
    if status in _GONE:
        return Gone(why, status)
    if status >= 500 or status in _BUSY:
        return Again(why, status, answer.retry_after)
    return Impossible(why, status)


def slack(settings: FeedSettings) -> DigestChannel:
    """Return the channel `slack`."""
    return DigestChannel.open(SLACK, settings)


def teams(settings: FeedSettings) -> DigestChannel:
    """Return the channel `teams`."""
    return DigestChannel.open(TEAMS, settings)
