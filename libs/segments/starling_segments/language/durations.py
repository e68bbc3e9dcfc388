"""Pure core: `<int><s|m|h|d|w>` to milliseconds. Days and weeks are fixed lengths (24 h, 7 x 24 h)."""

from __future__ import annotations

import re

SECOND_MS = 1_000
DAY_MS = 86_400_000
MAX_DURATION_MS = 1_095 * DAY_MS
DURATION_PATTERN = "^[0-9]{1,9}[smhdw]$"
EXPECTED = "a whole number and one of s m h d w, from 1s to 1095d"

_UNIT_MS = {"s": SECOND_MS, "m": 60_000, "h": 3_600_000, "d": DAY_MS, "w": 7 * DAY_MS}
_SHAPE = re.compile(r"[0-9]{1,9}[smhdw]")


def duration_ms(text: object) -> int | None:
    """Return milliseconds; None unless the text is a duration from 1 second to 1095 days."""
    if not isinstance(text, str) or not _SHAPE.fullmatch(text):
        return None
    length = int(text[:-1]) * _UNIT_MS[text[-1]]
    return length if SECOND_MS <= length <= MAX_DURATION_MS else None
