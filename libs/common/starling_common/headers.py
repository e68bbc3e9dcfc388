"""Pure core: the headers that every record carries."""

import random
from collections.abc import Iterable
from typing import Any, cast

Headers = list[tuple[str, str | bytes | None]]
"""As the Kafka client takes them; ours are UTF-8 bytes."""

CONTENT_TYPE = "content_type"
"""Of a dead letter's value, where it is not JSON; in the letter's own list of headers."""


_random = random.Random()  # noqa: S311 - a trace id is no secret
"""Separate from the module's shared generator: a caller that seeds that one does not repeat trace ids."""


def record_headers(correlation_id: str, produced_by: str, traceparent: str | None = None) -> Headers:
    """`correlation_id`, `traceparent` (W3C; a new trace when none is given) and `produced_by`."""
    return [
        ("correlation_id", correlation_id.encode()),
        ("traceparent", (traceparent or new_traceparent()).encode()),
        ("produced_by", produced_by.encode()),
    ]


def new_traceparent() -> str:
    """A W3C trace context that begins here; sampled."""
    # Not from the operating system's pool: asking it gives the interpreter lock away, and a worker that does so for each
    # record then waits for the thread that writes to the broker. A trace id is no secret.
    digits = f"{_random.getrandbits(192):048x}"
    return f"00-{digits[:32]}-{digits[32:]}-01"


def header(headers: Iterable[tuple[str, str | bytes | None]] | None, name: str) -> str | None:
    """The first header of that name, as text; None when it is absent or not UTF-8."""
    for key, value in headers or ():
        if key == name and isinstance(value, bytes):
            try:
                return value.decode()
            except UnicodeDecodeError:
                return None
    return None


def headers_of(message: Any) -> Headers:
    """The headers of a Kafka message as a list, however the client's version types them; empty when it has none."""
    found = message.headers()
    return cast("Headers", list(found.items()) if isinstance(found, dict) else list(found or []))
