"""Pure core: in which slot of time someone is filed who is due at some instant.

A wheel of slots, wide for what is far and narrow for what is near: a slot is between 1/32 and 1/16 as wide as its
distance, never narrower than about a second. When stream time reaches a slot's start, who is in it is either due or filed anew,
nearer. So there are at most a few hundred slots, however many people are filed, and finding the due ones reads only
slots that stream time has reached.
"""

from typing import NamedTuple

_NARROWEST_EXPONENT = 10
_FRACTION_BITS = 5


class Slot(NamedTuple):
    """The half-open span `[start_ms, start_ms + 2 ** exponent)`."""

    start_ms: int
    exponent: int


def slot_for(due_ms: int, now_ms: int) -> Slot:
    """Where to file, at `now_ms`, someone who is due at `due_ms` (later than `now_ms`)."""
    exponent = max(_NARROWEST_EXPONENT, (due_ms - now_ms).bit_length() - _FRACTION_BITS)
    return Slot(due_ms >> exponent << exponent, exponent)


def reached(slots: set[Slot], now_ms: int) -> list[Slot]:
    """The slots to open at `now_ms`, earliest first."""
    return sorted(slot for slot in slots if slot.start_ms <= now_ms)
