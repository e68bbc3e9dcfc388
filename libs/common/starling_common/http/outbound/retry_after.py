"""Pure core: the header Retry-After of a response (RFC 9110, 10.2.3)."""

from email.utils import parsedate_to_datetime
from typing import Final

MAX_RETRY_AFTER_SECONDS: Final = 3_600.0


def retry_after_seconds(text: str | None, now_ms: int) -> float | None:
    """Return the seconds of a Retry-After header, at most an hour; None without a valid one. `now_ms`: epoch ms."""
    if text is None:
        return None
    try:
        delay = float(text) if text.strip().isdigit() else parsedate_to_datetime(text).timestamp() - now_ms / 1000
    except (TypeError, ValueError, OverflowError):
        return None
    return min(max(delay, 0.0), MAX_RETRY_AFTER_SECONDS)
