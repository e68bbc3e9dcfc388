"""Edge: server-sent events from a blocking iterator, for a bounded number of clients. The streams end with the process."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from sse_starlette import EventSourceResponse, JSONServerSentEvent, ServerSentEvent
from starlette.types import Receive, Scope, Send

from starling_api.http.errors import CursorExpired, TooManyStreams
from starling_common.kafka.clients import BrokerUnavailable
from starling_common.telemetry.logs import log
from starling_common.wire import RegistryUnavailable, SchemaMissing

EVENT_STREAM: Final = "text/event-stream"
_SEPARATOR: Final = "\n"
_RETRY_MS: Final = 1000
"""Delay after which a client reconnects."""

_ENDS: Final = (CursorExpired, BrokerUnavailable, RegistryUnavailable, SchemaMissing)
"""Errors that end a stream. The client reconnects with its last id and receives the error response if the cause persists."""

Batches = Iterator[Sequence[tuple[str, Mapping[str, Any]]]]
"""Each step returns (id, data) pairs, or an empty list after a short wait. Not thread-safe."""


class Streams:
    """The streams of this process. They block threads of their own pool, not those of other requests."""

    def __init__(self, most: int, heartbeat_seconds: float, most_of_workspace: int | None = None) -> None:
        """`most`: streams of the process; `most_of_workspace`: of one workspace, None for all of them."""
        self.heartbeat_seconds = heartbeat_seconds
        self._most = most
        self._most_of_workspace = most if most_of_workspace is None else most_of_workspace
        self._open: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._threads = ThreadPoolExecutor(most, "stream")

    @property
    def is_ending(self) -> bool:
        """Return whether the process is stopping."""
        return self._ending.is_set()

    def open(self, batches: Batches, workspace: str) -> "EventStream":
        """Return a streaming response. Raises: TooManyStreams."""
        with self._lock:
            if self._open[workspace] >= self._most_of_workspace:
                limit = self._most_of_workspace
                raise TooManyStreams(f"{limit} clients of this workspace follow the feed, which is the limit: read pages")
            if self._open.total() >= self._most:
                raise TooManyStreams(f"{self._most} clients follow the feed, which is the limit: retry later, or read pages")
            self._open[workspace] += 1
        return EventStream(self, batches, workspace)

    async def next_of(self, batches: Batches) -> Sequence[tuple[str, Mapping[str, Any]]] | None:
        """Return the next step; None at the end."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, next, batches, None)

    def closed(self, workspace: str) -> None:
        """Release the place of a closed stream of the workspace."""
        with self._lock:
            self._open[workspace] -= 1
            if not self._open[workspace]:
                del self._open[workspace]

    def end(self) -> None:
        """End every stream at its next step."""
        self._ending.set()

    def close(self) -> None:
        """Wait for the threads of the pool."""
        self._threads.shutdown()


class EventStream(EventSourceResponse):
    """One streaming response. Its iterator is closed when the response ends for any reason."""

    def __init__(self, streams: Streams, batches: Batches, workspace: str) -> None:
        super().__init__(self._events(), ping=streams.heartbeat_seconds, ping_message_factory=_heartbeat, sep=_SEPARATOR)
        self._streams = streams
        self._batches = batches
        self._workspace = workspace
        self._step: asyncio.Future[Any] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until the client disconnects or the process stops."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.closed(self._workspace)
            if self._step is None or self._step.done():
                self._close()
            else:
                self._step.add_done_callback(lambda _: self._close())

    async def _events(self) -> AsyncIterator[bytes]:
        yield ServerSentEvent(retry=_RETRY_MS, sep=_SEPARATOR).encode()
        while not self._streams.is_ending:
            try:
                # Shielded: a thread that waits for the broker cannot be cancelled and must return before the iterator is closed.
                self._step = asyncio.ensure_future(self._streams.next_of(self._batches))
                batch = await asyncio.shield(self._step)
            except _ENDS as error:
                log(__name__).warning("stream_ended", error=str(error))
                return
            if batch is None:
                return
            if batch:
                # One write for all of them.
                yield b"".join(JSONServerSentEvent(data, id=cursor, sep=_SEPARATOR).encode() for cursor, data in batch)

    def _close(self) -> None:
        close = getattr(self._batches, "close", None)
        if close is not None:
            threading.Thread(target=close, name="stream-close", daemon=True).start()


def _heartbeat() -> ServerSentEvent:
    return ServerSentEvent(comment="heartbeat", sep=_SEPARATOR)
