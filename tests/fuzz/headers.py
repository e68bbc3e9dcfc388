"""Door: request lines, headers and framing of bodies, byte by byte over sockets, to the ingest API and the Segment API."""

import base64
import random
import select
import socket
from typing import Final
from urllib.parse import urlsplit

from tests.fuzz import hostile
from tests.fuzz.tally import Account, Defect, Input

ANSWER_SECONDS: Final = 40.0
"""Longer than the time limit for headers, after which the server closes the connection."""
WHOLE_SECONDS: Final = 0.3
"""A request without an answer after that is not complete: its client ends it."""
_METHODS: Final = ("POST", "GET", "PUT", "DELETE", "OPTIONS", "HEAD", "TRACE", "CONNECT", "PRI", "post", "P\x00ST", "X" * 300, "")
_VERSIONS: Final = ("HTTP/1.1", "HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "HTTP/9.9", "", "ICY", "HTTP/1.1 HTTP/1.1")
_PATHS: Final = (
    "/v1/track",
    "/v1/batch",
    "/healthz",
    "/v1/segments",
    "/v1/users/a%2Fb",
    "/v1/lists/x/members",
    "*",
    "http://a/b",
    "/%",
    "/\x00",
    "//",
    "/" + "a" * 9_000,
)
_NAMES: Final = (
    "Host", "Content-Length", "Content-Type", "Transfer-Encoding", "Content-Encoding", "Authorization", "X-Write-Key", "Expect",
    "Connection", "Upgrade", "X-Correlation-Id", "traceparent", "Origin", "Access-Control-Request-Headers",
    "Idempotency-Key", "If-Match",
    "Accept", "Range", "Cookie", "Forwarded", "X-Forwarded-Proto", "User-Agent", "Last-Event-ID", "Te", "Trailer",
)  # fmt: skip
_VALUES: Final = (
    "", "0", "-1", "5", "1e3", "+5", "5, 5", "99999999999999999999", "chunked", "gzip, chunked", "100-continue",
    "close", "keep-alive, x",
    "h2c", "websocket", "Basic", "Basic !!!", "Basic " + base64.b64encode(b"\xff:\xfe").decode(), "Bearer",
    "Bearer é", '"*"', "*", 'W/"1"',
    "text/event-stream", "application/json", "bytes=0-", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "a" * 9_000,
    "\x00", "\t", "é", "a\rb",
)  # fmt: skip
_CHUNKS: Final = (
    b"5\r\nhello\r\n0\r\n\r\n",
    b"FFFFFFFFFFFFFFFF\r\n",
    b"-1\r\n",
    b"5;x=y\r\nhello\r\n0\r\nX: y\r\n\r\n",
    b"zz\r\n",
    b"5\r\nhel",
)


class Headers:
    """An answer below 500, or a connection that the server closes at once, is a refusal; an open, silent connection is a defect."""

    name = "headers and framing"
    pace = 25.0

    def __init__(self, urls: tuple[str, ...], keys: tuple[str, ...]) -> None:
        """`keys`: credentials that a part of the requests has."""
        self._places = [(urlsplit(url).hostname or "", urlsplit(url).port or 80) for url in urls]
        self._keys = keys

    def make(self, dice: random.Random) -> Input:
        """Return the bytes of one connection. Its client sends nothing after them."""
        method, version = dice.choices(_METHODS, (40, 30, 9, 9, 9, *[1] * 8))[0], dice.choices(_VERSIONS, (60, *[1] * 7))[0]
        lines = [f"{method} {dice.choice(_PATHS)} {version}"]
        if dice.random() < 0.9:
            lines.append("Host: localhost")
        if dice.random() < 0.6:
            lines.append(f"{dice.choice(('X-Write-Key: ', 'Authorization: Bearer '))}{dice.choice(self._keys)}")
        body = dice.choice((b"", b"{}", b'{"userId":"fz-1","event":"E"}', *(_CHUNKS if dice.random() < 0.3 else ())))
        if dice.random() < 0.8:
            lines.append(f"Content-Length: {len(body)}")
        for _ in range(dice.choice((0, 0, 1, 1, 3, 40))):
            name = dice.choice(_NAMES) if dice.random() < 0.9 else hostile.text(dice)[:100]
            value = dice.choice(_VALUES) if dice.random() < 0.9 else hostile.text(dice)[:100]
            lines.append(f"{name}{dice.choices((': ', ':', ' : ', ''), (60, 5, 1, 1))[0]}{value}")
        data = "\r\n".join(lines).encode("utf-8", "surrogatepass") + b"\r\n\r\n"
        data += body
        return {"place": dice.randrange(len(self._places)), "data": hostile.broken(dice, data) if dice.random() < 0.2 else data}

    def send(self, given: Input, number: int) -> bool:
        """Send the bytes, and read the first answer."""
        with socket.create_connection(self._places[given["place"]], timeout=ANSWER_SECONDS) as connection:
            answer = b""
            try:
                connection.sendall(given["data"])
                if not select.select([connection], [], [], WHOLE_SECONDS)[0]:
                    connection.shutdown(socket.SHUT_WR)  # the server may wait for more
                while b"\r\n" not in answer and len(answer) < 65_536:
                    received = connection.recv(4_096)
                    if not received:
                        break
                    answer += received
            except TimeoutError:
                raise Defect(f"no answer within {ANSWER_SECONDS:g} s") from None
            except OSError:  # reset: the server closed a connection with unread bytes
                return False
        if not answer:
            return False
        status = answer.split(b" ", 2)[1:2]
        if not status or not status[0].isdigit() or (int(status[0]) >= 500 and int(status[0]) not in {501, 505}):
            raise Defect(f"answered {answer[:200]!r}")
        return int(status[0]) < 400

    def account(self) -> Account:
        """Return nothing more: the answers are complete."""
        return Account()
