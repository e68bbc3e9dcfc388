"""Pure core: hostile values, texts, JSON documents and bytes, all from dice, so that a seed repeats them."""

import gzip
import json
import random
import zlib
from collections.abc import Callable
from typing import Any, Final

Json = Any

NUMBERS: Final[tuple[Any, ...]] = (
    0, 1, -1, 0.5, 1e308, -1e308, 5e-324, 2**31 - 1, 2**31, 2**53 - 1, 2**53 + 1, -(2**53), 2**63 - 1, 2**63, -(2**63) - 1, 2**64,
    10**18, 10**40, 10**300, 10**400, -(10**400), float("inf"), float("-inf"), float("nan"), -0.0,
)  # fmt: skip
INSTANTS: Final[tuple[Any, ...]] = (
    "9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59-14:00", "1969-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00", "0000-00-00",
    "2026-02-30T00:00:00Z", "2026-03-01T24:00:00Z", "2026-03-01T23:59:60Z", "1970-01-01", "+010000-01-01T00:00:00Z", "now", "",
    253_402_300_800_000, -62_135_596_800_000, 10**18, -1, 0, 1.5, True,
)  # fmt: skip
TEXTS: Final[tuple[str, ...]] = (
    "", " ", "\x00", "a\x00b", "\ud800", "a\udfffb", "\ufeff", "\ufffe", "\u202e", "İ", "ß", "٣", "😀" * 40, "x" * 513, "é" * 300,
    "x" * 5_000, "9" * 400, "NaN", "null", "true", "1e400", "../../etc/passwd", "a/b", "a%2Fb", "a%b", "%00",
    "'; DROP TABLE users;--",
    "{{7*7}}", "<script>alert(1)</script>", "\r\nSet-Cookie: a=b", ".*", "(a+)+$", "(a{1000}){1000}", "__proto__", "constructor",
)  # fmt: skip
HUGE: Final = 200_000
"""Bytes of a huge text, which no item may have."""

_FIELDS: Final = (
    "userId", "anonymousId", "messageId", "timestamp", "originalTimestamp", "sentAt", "receivedAt", "type", "event", "properties",
    "traits", "context", "integrations", "groupId", "previousId", "name", "category", "batch", "writeKey", "products", "revenue",
    "channel", "_metadata", "version",
)  # fmt: skip
_LITERALS: Final = (
    b"null", b"true", b"NaN", b"-Infinity", b"1e400", b"-0", b"1e-400", b'"\\ud800"', b'"\\u0000"', b"[]", b"{}",
    b'""', b"[[[[", b"}}",
    b",", b":", b'"', b"\\", b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"9" * 400, b"[" * 3_000, b'{"a":' * 1_500, b" " * 1_000,
)  # fmt: skip


def text(dice: random.Random) -> str:
    """Return a hostile text, rarely a huge one."""
    chance = dice.random()
    if chance < 0.01:
        return dice.choice("xé\x00") * dice.choice((32_769, HUGE))
    if chance < 0.2:
        return "".join(
            chr(dice.choice((dice.randrange(1, 128), dice.randrange(0xD800), 0xD83D))) for _ in range(dice.randrange(1, 30))
        )
    return dice.choice(TEXTS)


def value(dice: random.Random, depth: int = 3) -> Json:
    """Return any hostile JSON value."""
    return dice.choice(_VALUES if depth else _VALUES[:-3])(dice, depth)


def nested(levels: int) -> Json:
    """Return lists and objects, nested this deep."""
    found: Json = 1
    for level in range(levels):
        found = [found] if level % 2 else {"v": found}
    return found


def mutated(dice: random.Random, document: Json) -> Json:
    """Return the document with one to four places changed: another value, none, a copy, another name."""
    copy = json.loads(json.dumps(document))
    for _ in range(dice.randrange(1, 5)):
        holder, name = _place(dice, copy)
        if holder is None:
            return value(dice)
        _CHANGES[dice.randrange(len(_CHANGES))](dice, holder, name)
    return copy


def as_bytes(dice: random.Random, document: Json) -> bytes:
    """Return the JSON of a document: strict or not, with surrogates as escapes or as invalid UTF-8."""
    written = json.dumps(document, ensure_ascii=dice.random() < 0.8)
    return written.encode("utf-8", "surrogatepass")


def broken(dice: random.Random, data: bytes) -> bytes:
    """Return the bytes with one to six changes: truncated, flipped, removed, repeated, inserted."""
    for _ in range(dice.randrange(1, 7)):
        at, length = dice.randrange(len(data) + 1), dice.choice((1, 2, 8, 64))
        match dice.randrange(6):
            case 0:
                data = data[:at]
            case 1 if data:
                at = min(at, len(data) - 1)
                data = data[:at] + bytes([data[at] ^ (1 << dice.randrange(8))]) + data[at + 1 :]
            case 2:
                data = data[:at] + data[at + length :]
            case 3:
                data = data[:at] + data[at : at + length] * dice.choice((2, 50)) + data[at:]
            case 4:
                data = data[:at] + dice.choice(_LITERALS) + data[at:]
            case _:
                data = data[:at] + dice.randbytes(length) + data[at:]
    return data


def packed(dice: random.Random, data: bytes) -> tuple[bytes, str]:
    """Return the bytes in some `Content-Encoding`, and its name; not always the true one."""
    small = gzip.compress(data, mtime=0)
    return dice.choice(
        (
            (small, "gzip"),
            (small, "x-gzip"),
            (broken(dice, small), "gzip"),
            (small * 2, "gzip"),
            (gzip.compress(b"\x00" * dice.choice((600_000, 5_000_000)), mtime=0), "gzip"),
            (zlib.compress(data), dice.choice(("deflate", "gzip"))),
            (data, dice.choice(("br", "gzip", "gzip, gzip", "identity", " gzip ", "x" * 2_000))),
        )
    )


def _place(dice: random.Random, document: Json) -> tuple[Any, Any]:
    """Return a container within the document and one of its names or indexes; (None, None) if it has none."""
    places: list[tuple[Any, Any]] = []
    pending = [document]
    while pending:
        found = pending.pop()
        if isinstance(found, dict):
            places += [(found, name) for name in found]
            pending += found.values()
        elif isinstance(found, list):
            places += [(found, index) for index in range(len(found))]
            pending += found
    return dice.choice(places) if places else (None, None)


def _replace(dice: random.Random, holder: Any, name: Any) -> None:
    holder[name] = value(dice)


def _remove(_dice: random.Random, holder: Any, name: Any) -> None:
    del holder[name]


def _repeat(dice: random.Random, holder: Any, name: Any) -> None:
    if isinstance(holder, list):
        holder += [holder[name]] * dice.choice((1, 3, 200))
    else:
        holder[dice.choice(_FIELDS)] = holder[name]


def _add(dice: random.Random, holder: Any, _name: Any) -> None:
    if isinstance(holder, dict):
        holder[dice.choice((*_FIELDS, text(dice)[:300]))] = value(dice)
    else:
        holder.append(value(dice))


_CHANGES: Final[tuple[Callable[[random.Random, Any, Any], None], ...]] = (_replace, _replace, _remove, _repeat, _add)

_VALUES: Final[tuple[Callable[[random.Random, int], Json], ...]] = (
    lambda dice, _depth: dice.choice(NUMBERS),
    lambda dice, _depth: dice.choice(NUMBERS),
    lambda dice, _depth: dice.choice(INSTANTS),
    lambda dice, _depth: dice.choice((None, True, False)),
    lambda dice, _depth: text(dice),
    lambda dice, _depth: text(dice),
    lambda dice, _depth: text(dice),
    lambda dice, _depth: nested(dice.choice((5, 40, 120))),
    lambda dice, depth: [value(dice, depth - 1) for _ in range(dice.choice((0, 1, 3, 40)))],
    lambda dice, depth: {text(dice)[:600]: value(dice, depth - 1) for _ in range(dice.choice((0, 1, 3, 20)))},
)
"""The last three contain other values."""
