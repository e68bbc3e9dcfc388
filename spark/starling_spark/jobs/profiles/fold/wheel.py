"""Pure core: the slots of a timer wheel.

Distant slots are wide and near slots are narrow: a slot is between 1/32 and 1/16 as wide as its distance, and at least about a
second. When stream time reaches a slot's start, each of its users is either due or moves to a nearer slot. There are at most a
few hundred slots for any number of users, and only the slots that stream time has reached are read.
"""

from typing import NamedTuple

_NARROWEST_EXPONENT = 10
_FRACTION_BITS = 5


class Slot(NamedTuple):
    """The half-open span `[start_ms, start_ms + 2 ** exponent)`."""

    start_ms: int
    exponent: int


def slot_for(due_ms: int, now_ms: int) -> Slot:
    """Return the slot at `now_ms` of a user who is due at `due_ms` (later than `now_ms`)."""
    exponent = max(_NARROWEST_EXPONENT, (due_ms - now_ms).bit_length() - _FRACTION_BITS)
    return Slot(due_ms >> exponent << exponent, exponent)


def reached(slots: set[Slot], now_ms: int) -> list[Slot]:
    """Return the slots to open at `now_ms`, earliest first."""
    return sorted(slot for slot in slots if slot.start_ms <= now_ms)
