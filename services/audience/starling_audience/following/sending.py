"""Edge: sends one batch: its requests side by side, a refused one in halves, so that single changes are rejected."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from starling_audience.adapters.adapter import Adapter, Again, AudienceRequest, Ended, Refused, Response, Result, Taken
from starling_audience.adapters.google_tokens import GoogleToken
from starling_audience.adapters.http import Exchange
from starling_audience.changes import Change
from starling_audience.failpoints import AFTER_SEND, BEFORE_SEND

_MOST_REFUSED: Final = 5
"""Changes that may be refused alone before one was taken. A side that refuses everything is a problem of the target."""
_UNAUTHENTICATED: Final = 401


@dataclass
class Sent:
    """What became of a batch: `problem` is None if every change was taken or rejected. `rejected`: each change with the reason."""

    taken: list[Change] = field(default_factory=list)
    rejected: list[tuple[Change, str]] = field(default_factory=list)
    problem: Again | Ended | None = None
    refused_alone: int = 0


class Sender:
    """Sends the batches of one target, one at a time."""

    def __init__(
        self,
        workspace: str,
        adapter: Adapter,
        exchange: Exchange,
        token: GoogleToken | None = None,
        *,
        concurrent: int = 4,
        passed: Callable[[str], None] = lambda _point: None,
    ) -> None:
        """`concurrent`: requests at a time. `token`: of an adapter whose requests need one. `passed`: called at failpoints."""
        self._workspace = workspace
        self._adapter = adapter
        self._exchange = exchange
        self._token = token
        self._slots = asyncio.Semaphore(concurrent)
        self._passed = passed

    async def send(self, changes: Sequence[Change]) -> Sent:
        """Send changes of different users or segments, all of which have an identifier.

        After a `problem` some of the changes may have arrived: the whole batch is sent again.
        """
        sent = Sent()
        await asyncio.gather(*(self._send(request, sent) for request in self._adapter.requests(changes)))
        return sent

    async def _send(self, request: AudienceRequest, sent: Sent) -> None:
        async with self._slots:
            if sent.problem is not None:
                return
            self._passed(BEFORE_SEND)
            result = await self._result(request)
            self._passed(AFTER_SEND)
        if isinstance(result, Taken):
            for index, entry in enumerate(request.entries):
                if (why := result.rejected.get(index)) is None:
                    sent.taken += entry
                else:
                    sent.rejected += [(change, why) for change in entry]
        elif isinstance(result, Refused):
            await self._divide(request, result, sent)
        elif not isinstance(sent.problem, Ended):
            sent.problem = result

    async def _divide(self, request: AudienceRequest, refused: Refused, sent: Sent) -> None:
        """Send what is left of a refused request: without the elements that the answer names, else its halves."""
        named = {index: why for index, why in refused.rejected.items() if 0 <= index < len(request.entries)}
        if len(request.entries) == 1:
            self._reject_alone(request.changes, refused.why, sent)
            return
        if named and len(named) < len(request.entries):
            for index, why in named.items():
                sent.rejected += [(change, why) for change in request.entries[index]]
            parts = [[entry for index, entry in enumerate(request.entries) if index not in named]]
        else:
            middle = len(request.entries) // 2
            parts = [list(request.entries[:middle]), list(request.entries[middle:])]
        for part in parts:
            for half in self._adapter.requests([change for entry in part for change in entry]):
                await self._send(half, sent)

    def _reject_alone(self, changes: Sequence[Change], why: str, sent: Sent) -> None:
        sent.refused_alone += 1
        if sent.refused_alone >= _MOST_REFUSED and not sent.taken:
            sent.problem = sent.problem or Again(f"it refuses each of {sent.refused_alone} changes alone: {why}")
        sent.rejected += [(change, why) for change in changes]

    async def _result(self, request: AudienceRequest) -> Result:
        answer = await self._answered(request)
        if isinstance(answer, Response) and answer.status == _UNAUTHENTICATED and self._token is not None:
            # The token may have been revoked. Only the second refusal concerns the account.
            self._token.drop()
            answer = await self._answered(request)
        return self._adapter.read(request, answer) if isinstance(answer, Response) else answer

    async def _answered(self, request: AudienceRequest) -> Response | Again | Ended:
        if self._token is not None:
            token = await self._token.value(self._exchange)
            if not isinstance(token, str):
                return token
            request = replace(request, headers={**request.headers, "authorization": f"Bearer {token}"})
        return await self._exchange.exchange(self._workspace, request)
