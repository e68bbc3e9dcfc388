"""Edge: the HTTP side of callbacks: which target an address names, and the answer to the provider."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from prometheus_client import Counter

from starling_common.http.rate_limits import RETRY_AFTER
from starling_common.kafka.clients import BrokerUnavailable
from starling_common.telemetry.logs import log
from starling_tracker import answers
from starling_tracker.answers import RETRY_SECONDS, Answer
from starling_tracker.callbacks.certificates import NotReached
from starling_tracker.callbacks.receiver import Incoming, Received, Receiver
from starling_tracker.callbacks.report import Malformed, Unauthorised
from starling_tracker.callbacks.targets import CallbackTarget, TargetKey
from starling_tracker.machines import HeaderOf
from starling_tracker.records import Outgoing

PATH: Final = "/p/"
"""The beginning of the addresses of callbacks."""

_DEFAULT_WORKSPACE: Final = "default"
"""The workspace of a target whose address names none."""
_MOST_PATH: Final = 1_000
_UNPROCESSABLE: Final = 422
_RETRY: Final = (RETRY_AFTER, str(RETRY_SECONDS))


class FindTarget(Protocol):
    """The targets whose providers call back."""

    def __call__(self, place: TargetKey, /) -> CallbackTarget | None: ...  # noqa: D102


Publish = Callable[[Sequence[Outgoing]], Awaitable[None]]
"""Publishes records, and waits for the broker. Raises: BrokerUnavailable."""


class Request(NamedTuple):
    """A POST request below `PATH`. `body`: (maximum size) -> the body, or the answer to one that is too large or too slow."""

    path: str
    query: str
    header: HeaderOf
    body: Callable[[int], Awaitable[bytes | Answer]]


@dataclass(frozen=True)
class CallbackDependencies:
    """The dependencies of callbacks. `most_bytes`: of a body. `public_url`: the tracker's own, without a slash at its end."""

    receiver: Receiver
    most_bytes: int
    public_url: str | None


class Callbacks:
    """Takes callbacks, once it is opened."""

    def __init__(self, dependencies: CallbackDependencies, reports: Counter) -> None:
        """`reports`: counts reports by provider and outcome."""
        self._dependencies = dependencies
        self._reports = reports
        self._publish: Publish | None = None
        self._target: FindTarget | None = None

    def open(self, publish: Publish, target: FindTarget) -> None:
        """Start to take callbacks."""
        self._publish, self._target = publish, target

    async def answer(self, request: Request) -> Answer:
        """Return the answer: 200 once the broker has everything that the callback causes."""
        target = self._found(request.path)
        if isinstance(target, Answer):
            return target
        body = await request.body(self._dependencies.most_bytes)
        if isinstance(body, Answer):
            return body
        try:
            return await self._reported(target, await self._dependencies.receiver.receive(target, self._incoming(request, body)))
        except (Malformed, Unauthorised, NotReached, BrokerUnavailable) as error:
            return _refused(target, error)

    def _found(self, path: str) -> CallbackTarget | Answer:
        """Return the target of an address, or the answer to a request that no target takes now."""
        if self._publish is None or self._target is None:
            return answers.plain(503, "the process is starting: send the same request again", _RETRY)
        place = _place(path)
        target = None if place is None else self._target(place)
        if target is None:
            return answers.plain(404, "no target with callbacks has this address: it is /p/<workspace>/<key of the target>")
        if target.problem is not None:
            log(__name__).error("callback_not_taken", target="/".join(target.place), reason=target.problem)
            return answers.plain(503, "the credential of the target cannot be decrypted", _RETRY)
        return target

    def _incoming(self, request: Request, body: bytes) -> Incoming:
        path = f"{request.path}?{request.query}" if request.query else request.path
        base, host = self._dependencies.public_url, request.header("host") or ""
        urls = [f"{base}{path}"] if base else [f"https://{host}{path}", f"http://{host}{path}"]
        return Incoming(path, request.query, urls, request.header, body)

    async def _reported(self, target: CallbackTarget, received: Received) -> Answer:
        if received.is_replay and received.refused:
            return answers.plain(_UNPROCESSABLE, received.refused[0])
        if received.records and self._publish is not None:
            await self._publish(received.records)
            self._dependencies.receiver.published(received)
        for name in received.outcomes:
            self._reports.labels(target.provider.value, name).inc()
        if received.refused:
            found = len(received.refused)
            log(__name__).warning("reports_refused", target="/".join(target.place), count=found, reason=received.refused[0])
        return answers.no_reply() if received.is_text else answers.plain(200, "ok")


def _refused(target: CallbackTarget, error: Exception) -> Answer:
    log(__name__).warning("callback_refused", target="/".join(target.place), reason=str(error))
    if isinstance(error, Malformed):
        return answers.plain(400, str(error))
    if isinstance(error, Unauthorised):
        return answers.plain(401, str(error))
    return answers.plain(503, "not taken: send the same request again", _RETRY)


def _place(path: str) -> TargetKey | None:
    """Return the target of the address `/p/<workspace>/<key>`, or `/p/<key>` in the workspace `default`; None for another path."""
    parts = path.removeprefix(PATH).split("/")
    if len(path) > _MOST_PATH or len(parts) > len(TargetKey._fields) or not all(parts):
        return None
    return TargetKey(*parts) if len(parts) == len(TargetKey._fields) else TargetKey(_DEFAULT_WORKSPACE, parts[0])
