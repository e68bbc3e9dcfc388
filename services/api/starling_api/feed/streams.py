"""Edge: server-sent events out of an iterator that waits, for a bounded number of clients, with an end when the process ends."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from starling_api.http.errors import CursorExpired, TooManyStreams
from starling_common.kafka import BrokerUnavailable
from starling_common.logs import log
from starling_common.wire import RegistryUnavailable, SchemaMissing

EVENT_STREAM: Final = "text/event-stream"
_RETRY_MS: Final = 1000
"""After a stream has ended a client comes back this much later."""

_ENDS: Final = (CursorExpired, BrokerUnavailable, RegistryUnavailable, SchemaMissing)
"""What ends a stream: the client comes back with its last id, and is then answered with what is wrong, if it still is."""

Batches = Iterator[Sequence[tuple[str, Mapping[str, Any]]]]
"""Each step gives ids and data, or nothing after waiting for a moment. Not to be used by two threads at once."""


class Streams:
    """The streams of this process. Their waiting is done in threads of their own: requests need not wait for these."""

    def __init__(self, most: int, heartbeat_seconds: float) -> None:
        self.heartbeat_seconds = heartbeat_seconds
        self._most = most
        self._open = 0
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._threads = ThreadPoolExecutor(most, "stream")

    @property
    def is_ending(self) -> bool:
        """Whether streams have to come to their end."""
        return self._ending.is_set()

    def open(self, batches: Batches) -> "EventStream":
        """An answer that streams. Raises: TooManyStreams."""
        with self._lock:
            if self._open >= self._most:
                raise TooManyStreams(f"{self._most} clients are following already: try again, or read pages")
            self._open += 1
        return EventStream(self, batches)

    async def next_of(self, batches: Batches) -> Sequence[tuple[str, Mapping[str, Any]]] | None:
        """The next step; None when there is none."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, next, batches, None)

    def closed(self) -> None:
        """One stream less."""
        with self._lock:
            self._open -= 1

    def end(self) -> None:
        """Let every stream end soon."""
        self._ending.set()

    def close(self) -> None:
        """Wait for the threads."""
        self._threads.shutdown()


class EventStream(StreamingResponse):
    """One answer; what it reads from is closed when it ends, whoever ended it."""

    def __init__(self, streams: Streams, batches: Batches) -> None:
        # A proxy that gathers up what we send would hold back the news.
        super().__init__(self._events(), media_type=EVENT_STREAM, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._streams = streams
        self._batches = batches
        self._step: asyncio.Future[Any] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Streams until the client goes, or the process ends."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.closed()
            if self._step is None or self._step.done():
                self._close()
            else:
                self._step.add_done_callback(lambda _: self._close())

    async def _events(self) -> AsyncIterator[str]:
        yield f"retry: {_RETRY_MS}\n"
        said_at = time.monotonic()
        while not self._streams.is_ending:
            try:
                # Shielded: a thread that waits for the broker cannot be called off, and has to come back before we close.
                self._step = asyncio.ensure_future(self._streams.next_of(self._batches))
                batch = await asyncio.shield(self._step)
            except _ENDS as error:
                log(__name__).warning("stream_ended", error=str(error))
                return
            if batch is None:
                return
            if batch:
                yield "".join(map(event_text, batch))
            elif time.monotonic() - said_at < self._streams.heartbeat_seconds:
                continue
            else:
                yield ": heartbeat\n"
            said_at = time.monotonic()

    def _close(self) -> None:
        close = getattr(self._batches, "close", None)
        if close is not None:
            threading.Thread(target=close, name="stream-close", daemon=True).start()


def event_text(event: tuple[str, Mapping[str, Any]]) -> str:
    """One event as the wire has it: its id, its data in one line."""
    return f"id: {event[0]}\ndata: {json.dumps(event[1], ensure_ascii=False, separators=(',', ':'))}\n\n"
