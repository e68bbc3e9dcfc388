"""Adapter: random identifiers, made of random bytes that are fetched from the system many at a time.

A system call for each identifier costs more than all the parsing of a small request.
"""

import os
from typing import Final

_FETCHED_BYTES: Final = 8192


class Identifiers:
    """Used from one event loop only."""

    def __init__(self) -> None:
        self._hex = ""
        self._at = 0

    def uuid(self) -> str:
        """A random (version 4) UUID."""
        digits = self._take(32)
        # The variant takes one of four digits; one of them is as good as any.
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"

    def traceparent(self) -> str:
        """A W3C trace context that begins here; sampled."""
        digits = self._take(48)
        return f"00-{digits[:32]}-{digits[32:]}-01"

    def _take(self, count: int) -> str:
        start = self._at
        if start + count > len(self._hex):
            self._hex = os.urandom(_FETCHED_BYTES).hex()
            start = 0
        self._at = start + count
        return self._hex[start : start + count]
