"""Adapter: events in a bounded queue, sent by a thread of their own. Only a process with an address imports it."""

import json
import queue
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event as Signal
from threading import Lock, Thread
from typing import Any, Final, Protocol, cast
from urllib.parse import unquote, urlsplit

from openlineage.client.event_v2 import RunEvent
from openlineage.client.transport.http import HttpConfig, HttpTransport, TokenProvider
from prometheus_client import Counter

from starling_common.telemetry.logs import log
from starling_spark.lineage.runs import Event
from starling_spark.lineage.settings import LineageSettings

MOST_WAITING: Final = 1_000
_WARNING_SECONDS: Final = 60.0
_RETRIES: Final[Mapping[str, Any]] = {
    "total": 2,
    "backoff_factor": 0.5,
    "status_forcelist": [429, 500, 502, 503, 504],
    "allowed_methods": ["POST"],
    "respect_retry_after_header": False,
}
FULL: Final = "queue_full"
NOT_SENT: Final = "not_sent"
AT_END: Final = "process_ended"
"""Why an event is dropped."""


class Transport(Protocol):
    """Sends an event. It may raise any error, and wait."""

    def send(self, document: Mapping[str, Any]) -> None:
        """Send a JSON object."""


class HttpAddress:
    """An HTTP address, by the client of OpenLineage."""

    def __init__(self, url: str, token_file: str | None, timeout_seconds: float) -> None:
        auth = TokenProvider({}) if token_file is None else _FileToken(token_file)
        self._transport = HttpTransport(HttpConfig(url, "", timeout_seconds, auth=auth, retry=dict(_RETRIES)))

    def send(self, document: Mapping[str, Any]) -> None:
        """Send a JSON object. Raises: an error of requests, OSError."""
        self._transport.emit(cast("RunEvent", dict(document)))  # it serializes objects of JSON too


class _FileToken(TokenProvider):
    """A token that may change while the process runs."""

    def __init__(self, path: str) -> None:
        super().__init__({})
        self._path = Path(path)

    def get_bearer(self) -> str | None:
        return f"Bearer {self._path.read_text().strip()}"


class LinesOfFile:
    """A file with an event a line."""

    def __init__(self, url: str) -> None:
        self._path = Path(unquote(urlsplit(url).path))

    def send(self, document: Mapping[str, Any]) -> None:
        """Append a JSON object. Raises: OSError."""
        with self._path.open("a") as lines:
            lines.write(json.dumps(document, sort_keys=True) + "\n")


def transport_of(settings: LineageSettings) -> Transport:
    """Return the transport of an address."""
    url = str(settings.url)
    return LinesOfFile(url) if url.startswith("file:") else HttpAddress(url, settings.token_file, settings.timeout_seconds)


class Sender:
    """Sends events in order. `dropped`: by reason."""

    def __init__(
        self, write: Callable[[Event], Mapping[str, Any]], transport: Transport, dropped: Counter, most: int = MOST_WAITING
    ) -> None:
        """`write`: makes the JSON object of an event; `most`: events that may wait."""
        self._write = write
        self._transport = transport
        self._dropped = dropped
        self._waiting: queue.Queue[Event | None] = queue.Queue(most)
        self._lost = 0
        self._warned: float | None = None
        self._lock = Lock()
        self._ended = Signal()
        Thread(target=self._run, name="lineage", daemon=True).start()

    def emit(self, event: Event) -> None:
        """Let an event wait to be sent; drop it if too many wait."""
        try:
            self._waiting.put_nowait(event)
        except queue.Full:
            self._drop(FULL, "too many events wait")

    def close(self, timeout_seconds: float) -> None:
        """Send what waits, for at most this time. What is left is dropped."""
        deadline = time.monotonic() + timeout_seconds
        try:
            self._waiting.put(None, timeout=timeout_seconds)
        except queue.Full:
            pass
        else:
            self._ended.wait(max(0.0, deadline - time.monotonic()))
        if self._ended.is_set():
            return
        left = self._waiting.qsize()
        self._dropped.labels(AT_END).inc(left)
        log(__name__).warning("lineage_dropped", events=self._lost + left, reason="the job ended before its events were sent")

    def _run(self) -> None:
        while (event := self._waiting.get()) is not None:
            try:
                self._transport.send(self._write(event))
            except Exception as error:  # noqa: BLE001 - whatever the failure, the job and the next events go on
                # The text of the error can contain the address, and with it a token that an operator wrote into its path.
                status = getattr(getattr(error, "response", None), "status_code", None)
                self._drop(NOT_SENT, type(error).__name__ if status is None else f"the address answers {status}")
        self._ended.set()

    def _drop(self, reason: str, why: str) -> None:
        self._dropped.labels(reason).inc()
        with self._lock:
            self._lost += 1
            now = time.monotonic()
            if self._warned is not None and now - self._warned < _WARNING_SECONDS:
                return
            self._warned, lost, self._lost = now, self._lost, 0
        log(__name__).warning("lineage_dropped", events=lost, reason=why)
