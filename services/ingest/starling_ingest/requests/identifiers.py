"""Adapter: random identifiers from a buffer of system randomness.

The buffer exists because one system call per identifier costs more than parsing a small request.
"""

import os
from typing import Final

_FETCHED_BYTES: Final = 8192


class Identifiers:
    """A source of random identifiers. Used from one event loop only."""

    def __init__(self) -> None:
        self._hex = ""
        self._at = 0

    def uuid(self) -> str:
        """Return a random (version 4) UUID."""
        digits = self._take(32)
        # The variant digit is 8, 9, a or b; a constant is valid and needs no random bits.
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"

    def traceparent(self) -> str:
        """Return a new, sampled W3C trace context."""
        digits = self._take(48)
        return f"00-{digits[:32]}-{digits[32:]}-01"

    def _take(self, count: int) -> str:
        start = self._at
        if start + count > len(self._hex):
            self._hex = os.urandom(_FETCHED_BYTES).hex()
            start = 0
        self._at = start + count
        return self._hex[start : start + count]
