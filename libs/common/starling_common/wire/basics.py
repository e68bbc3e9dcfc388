"""Pure core: encoders of Avro's basic types, for the hot paths.

A number is zigzag encoded, then written in seven bits per byte, lowest first (Avro 1.12, "Binary Encoding"). Tests compare the
results with the general codec byte for byte.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final


def base128_bytes(rest: int) -> bytes:
    """Encode a non-negative number in seven bits per byte, lowest first, as Protocol Buffers encodes lengths."""
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


_SMALL: Final = tuple(base128_bytes(number << 1) for number in range(8192))
_PAIRS: Final = tuple(bytes((low & 0x7F | 0x80, low >> 7 | 0x80)) for low in range(1 << 14))
"""The two bytes of each 14-bit value within a longer number."""
_HIGH_END: Final = 1 << 36
"""A zigzag number of 64 bits has less than this above its lowest 28 bits."""


def long_bytes(number: int) -> bytes:
    """Encode a `long`, an `int`, the index of an enum symbol, or a length."""
    if 0 <= number < 8192:
        return _SMALL[number]
    zigzag = number << 1 if number > 0 else ~(number << 1)
    high = zigzag >> 28
    return _PAIRS[zigzag & 0x3FFF] + _PAIRS[zigzag >> 14 & 0x3FFF] + _high(high) if high else base128_bytes(zigzag)


@lru_cache(maxsize=1024)
def _high(bits: int) -> bytes:
    # The cache hits because the upper bits of a time change once in 37 hours (milliseconds) or two minutes (microseconds).
    if bits >= _HIGH_END:
        raise OverflowError("the number has more than 64 bits")
    return base128_bytes(bits)


def text_bytes(text: str) -> bytes:
    """Encode a `string`."""
    data = text.encode()
    length = len(data)
    return (_SMALL[length] if length < 8192 else long_bytes(length)) + data


def optional_text_bytes(text: str | None) -> bytes:
    """Encode a `["null", "string"]`."""
    return b"\x00" if text is None else b"\x02" + text_bytes(text)


def texts_bytes(texts: Sequence[str]) -> bytes:
    """Encode an array of `string` in one block."""
    return b"".join((long_bytes(len(texts)), *map(text_bytes, texts), b"\0")) if texts else b"\0"
