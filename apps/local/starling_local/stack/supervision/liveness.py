"""Adapter: one liveness check of a part over a socket that never blocks, because the supervisor has one thread.

A stopped process still accepts connections, by its kernel, and answers nothing: the check then has no result.
"""

import http.client
import io
import json
import select
import socket
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from starling_local.stack.parts.part import CqlProbe, HttpProbe, KafkaProbe, Probe
from starling_local.stack.supervision.probes import CQL_OPTIONS

_READ_BYTES: Final = 65_536

_KAFKA_API_VERSIONS: Final = bytes([0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xFF, 0xFF])
"""A request of 10 bytes: API 18, version 0, correlation id 1, no client id. A broker answers it before any authentication."""
_ANSWER_BYTES: Final = 9
"""Enough of an answer to the two binary requests to know that the process has processed one."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The end of a check. `answered`: False if the connection was refused or broke. `failure`: the problem in the answer."""

    answered: bool
    failure: str | None = None


class LivenessCheck:
    """A request that is sent when the connection stands; `poll` returns its result."""

    def __init__(self, probe: Probe) -> None:
        """Begin to connect."""
        self._address, self._request = _request_of(probe)
        self._is_http = isinstance(probe, HttpProbe)
        self._data = b""
        self._sent = False
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._socket.connect_ex(self._address)

    def poll(self) -> CheckResult | None:
        """Return the result; None while there is none. Closes the connection with the result."""
        try:
            result = self._progress()
        except OSError:
            result = CheckResult(answered=False)
        if result is not None:
            self.close()
        return result

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _progress(self) -> CheckResult | None:
        if not self._sent:
            if not select.select([], [self._socket], [], 0)[1]:
                return None
            self._socket.sendall(self._request)  # a few bytes, which fit into the buffer of a new connection
            self._sent = True
        while select.select([self._socket], [], [], 0)[0]:
            received = self._socket.recv(_READ_BYTES)
            self._data += received
            if not received or not self._is_http:
                return self._classified() if received or self._is_http else CheckResult(answered=False)
        return None

    def _classified(self) -> CheckResult | None:
        if not self._is_http:
            return CheckResult(answered=True) if len(self._data) >= _ANSWER_BYTES else None
        response = http.client.HTTPResponse(_Received(self._data))  # type: ignore[arg-type]
        try:
            response.begin()
            body = response.read()
        except http.client.HTTPException:
            return CheckResult(answered=False)
        if response.status == HTTPStatus.OK:
            return CheckResult(answered=True)
        return CheckResult(answered=True, failure=f"{response.status} {_failed_checks(body)}".strip())


class _Received:
    """Received bytes, as the only method of a socket that the parser calls."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _mode: str) -> io.BytesIO:
        """Return the bytes as a file."""
        return io.BytesIO(self._data)


def _request_of(probe: Probe) -> tuple[tuple[str, int], bytes]:
    match probe:
        case HttpProbe(url):
            parts = urlsplit(url)
            head = f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n\r\n"
            return (parts.hostname or "", parts.port or 80), head.encode()
        case KafkaProbe(brokers):
            host, _, port = brokers.partition(":")
            return (host, int(port)), _KAFKA_API_VERSIONS
        case CqlProbe(host, number):
            return (host, number), CQL_OPTIONS
    raise ValueError(f"{probe} is no liveness check")


def _failed_checks(body: bytes) -> str:
    """Return the failed checks in the body of a service's health answer; empty for another body."""
    with suppress(ValueError, AttributeError):
        checks = json.loads(body).get("checks", {})
        return "; ".join(f"{name}: {problem}" for name, problem in checks.items() if problem != "ok")
    return ""
