"""Pure core: the headers of every record."""

import random
from collections.abc import Iterable
from typing import Any, cast

Headers = list[tuple[str, str | bytes | None]]
"""The type that the Kafka client accepts; the platform's values are UTF-8 bytes."""

CONTENT_TYPE = "content_type"
"""The header with the content type of a dead letter's value, if that is not JSON; part of the letter's own list of headers."""


_random = random.Random()  # noqa: S311 - a trace id is no secret
"""Separate from the module's shared generator: a caller that seeds that one does not repeat trace ids."""


def record_headers(correlation_id: str, produced_by: str, traceparent: str | None = None) -> Headers:
    """Return `correlation_id`, `traceparent` (W3C; a new trace if None) and `produced_by`."""
    return [
        ("correlation_id", correlation_id.encode()),
        ("traceparent", (traceparent or new_traceparent()).encode()),
        ("produced_by", produced_by.encode()),
    ]


def new_traceparent() -> str:
    """Return a new, sampled W3C trace context."""
    # `os.urandom` releases the interpreter lock, and a worker that calls it for each record then waits for the producer's
    # thread.
    digits = f"{_random.getrandbits(192):048x}"
    return f"00-{digits[:32]}-{digits[32:]}-01"


def header(headers: Iterable[tuple[str, str | bytes | None]] | None, name: str) -> str | None:
    """Return the first header of that name as text; None if it is absent or not UTF-8."""
    for key, value in headers or ():
        if key == name and isinstance(value, bytes):
            try:
                return value.decode()
            except UnicodeDecodeError:
                return None
    return None


def headers_of(message: Any) -> Headers:
    """Return the headers of a Kafka message as a list; the client returns a list, a dict or None."""
    found = message.headers()
    return cast("Headers", list(found.items()) if isinstance(found, dict) else list(found or []))
