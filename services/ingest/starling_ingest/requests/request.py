"""Pure core: read the headers and the query of one request, and decompress its body."""

import base64
import binascii
import re
import zlib
from collections.abc import Container
from typing import Final, Protocol
from urllib.parse import parse_qs

from starling_common.outcome import Done, Outcome, Refused
from starling_ingest.requests.identifiers import Identifiers

MAX_BODY_BYTES: Final = 512 * 1024
"""Largest body after decompression (contract, part 3)."""

MAX_WIRE_BYTES: Final = MAX_BODY_BYTES + 1024
"""Largest body on the wire; gzip makes incompressible data a few bytes longer."""

MAX_USER_AGENT_CHARACTERS: Final = 512

_CORRELATION_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")
_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_HEADER_NAMES: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+(?:[ \t]*,[ \t]*[!#$%&'*+.^_`|~0-9A-Za-z-]+)*")
_MAX_REQUESTED_CHARACTERS: Final = 2048
_HOST: Final = re.compile(r"[A-Za-z0-9.\-]+(?::\d{1,5})?|\[[0-9A-Fa-f:.]+\](?::\d{1,5})?")


class Headers(Protocol):
    """Request headers by lower-case name."""

    def get(self, key: str) -> str | None: ...  # noqa: D102 - as of a mapping


def write_key(headers: Headers, query: str, known: Container[str]) -> str | None:
    """Return the write key of the headers or the query: HTTP Basic, then `X-Write-Key`, then `?writeKey=`.

    With HTTP Basic the key is `user:password` if that is known, else `user`: most clients send the key as the user name.
    """
    authorization = headers.get("authorization")
    if authorization and (credentials := _basic(authorization)) and (user := credentials.partition(":")[0]):
        return credentials if credentials in known else user
    if key := headers.get("x-write-key"):
        return key
    if query:
        return next(iter(parse_qs(query).get("writeKey", ())), None)
    return None


def requested_headers(headers: Headers) -> str | None:
    """Return the header names that a preflight requests; None if it requests none or the value is malformed."""
    requested = headers.get("access-control-request-headers")
    return requested if requested and len(requested) <= _MAX_REQUESTED_CHARACTERS and _HEADER_NAMES.fullmatch(requested) else None


def correlation_id(headers: Headers, identifiers: Identifiers) -> str:
    """Return the sender's correlation id if its characters and length are safe, else a new one."""
    sent = headers.get("x-correlation-id")
    return sent if sent and _CORRELATION_ID.fullmatch(sent) else identifiers.uuid()


def traceparent(headers: Headers, identifiers: Identifiers) -> str:
    """Return the sender's trace context if it is valid, else a new one."""
    return sent_traceparent(headers) or identifiers.traceparent()


def sent_traceparent(headers: Headers) -> str | None:
    """Return the sender's trace context; None if it is missing or invalid."""
    sent = headers.get("traceparent")
    return sent if sent and _TRACEPARENT.fullmatch(sent) else None


def user_agent(headers: Headers) -> str | None:
    """Return the `User-Agent`, truncated, because every record of the request contains it."""
    sent = headers.get("user-agent")
    return sent[:MAX_USER_AGENT_CHARACTERS] if sent else sent


def host(headers: Headers, authority: str | None) -> str | None:
    """Return the host name that the client used; None if it is malformed."""
    name = headers.get("host") or authority or ""
    return name if _HOST.fullmatch(name) else None


def unpack(body: bytes, encoding: str | None) -> Outcome[bytes]:
    """Decompress the body according to its `Content-Encoding`, up to `MAX_BODY_BYTES`."""
    match (encoding or "identity").strip().lower():
        case "identity" | "":
            return too_large() if len(body) > MAX_BODY_BYTES else Done(body)
        case "gzip" | "x-gzip":
            return _gunzip(body)
        case other:
            return Refused("unsupported_encoding", f"Content-Encoding: {other[:40]!r} is not supported: send gzip or no encoding")


def too_large() -> Refused:
    """Return the refusal of a body over the limit."""
    return Refused("body_too_large", f"the body has over {MAX_BODY_BYTES} bytes decompressed: send several smaller requests")


def _gunzip(body: bytes) -> Outcome[bytes]:
    out = b""
    rest = body
    while rest or not out:
        unpacker = zlib.decompressobj(wbits=31)
        try:
            out += unpacker.decompress(rest, MAX_BODY_BYTES + 1 - len(out))
        except zlib.error as error:
            return Refused("bad_gzip", f"the body is not gzip, but its Content-Encoding is: {error}")
        if len(out) > MAX_BODY_BYTES:
            return too_large()
        if not unpacker.eof:
            return Refused("bad_gzip", "the gzip body is truncated: send it again")
        rest = unpacker.unused_data
        if not out and not rest:
            break
    return Done(out)


def _basic(authorization: str) -> str | None:
    scheme, _, credentials = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        return base64.b64decode(credentials.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
