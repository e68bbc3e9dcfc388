"""Pure core: the encoding of an SMS and its number of segments (3GPP TS 23.038 and 23.040)."""

from collections.abc import Iterator
from typing import Final, NamedTuple

GSM_7: Final = "GSM-7"
UCS_2: Final = "UCS-2"
_BASIC: Final = frozenset(
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./"
    "0123456789:;<=>?¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
)
_EXTENSION: Final = frozenset("\f^{}\\[~]|€")
"""Characters of two septets: an escape and the character."""
_SEPTETS: Final = (160, 153)
_UNITS: Final = (70, 67)
"""Capacity of a single segment, and of each segment of a longer message, whose header takes six octets."""
_LAST_OF_ONE_UNIT: Final = 0xFFFF


class SmsSize(NamedTuple):
    """The size of a text as an SMS. `units`: septets of GSM-7, or 16-bit units of UCS-2."""

    encoding: str
    units: int
    segments: int


def sms_size(text: str) -> SmsSize:
    """Return the encoding, the units and the segments of a text. An empty text has one segment.

    A character of two units is never divided between segments, so that a message can need more segments than its units fill.
    """
    is_gsm = all(character in _BASIC or character in _EXTENSION for character in text)
    sizes = tuple(_septets(text) if is_gsm else _ucs2_units(text))
    single, each = _SEPTETS if is_gsm else _UNITS
    units = sum(sizes)
    encoding = GSM_7 if is_gsm else UCS_2
    if units <= single:
        return SmsSize(encoding, units, 1)
    segments, used = 1, 0
    for size in sizes:
        if used + size > each:
            segments, used = segments + 1, 0
        used += size
    return SmsSize(encoding, units, segments)


def _septets(text: str) -> Iterator[int]:
    return (2 if character in _EXTENSION else 1 for character in text)


def _ucs2_units(text: str) -> Iterator[int]:
    return (2 if ord(character) > _LAST_OF_ONE_UNIT else 1 for character in text)
