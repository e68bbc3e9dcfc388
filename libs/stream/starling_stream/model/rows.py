"""Pure core, hot path: the bytes of one key's row, in the local store and in the changelog.

A local row is `version (8 bytes) | due (8 bytes) | payload`, big-endian. `due` is the key's next timer in epoch milliseconds,
shifted so that the order of the bytes is the order of the instants; all ones mean never. The row of a deleted key is its version
alone: the versions of a key never decrease, even over a deletion. The changelog's `StateChanged.state` is the row without its
version: `due (8 bytes) | payload`.
"""

import struct
from typing import Final

_U64: Final = struct.Struct(">Q")
_SHIFT: Final = 1 << 63
FIRST_MS: Final = -_SHIFT
"""The first instant at which a row can be due."""

NEVER: Final = b"\xff" * 8
"""The due bytes of a key without a timer."""

NO_VERSION: Final = 0
_FIRST: Final = _U64.pack(NO_VERSION + 1)
_DUE_AT: Final = 8
_STATE_AT: Final = 16

MAX_STATE_BYTES: Final = 4 * 1024 * 1024
"""The limit of a key's state in bytes: a record that would exceed it is refused.

Timers and new definitions may add to a state up to the maximal size of a changelog record (`max_record` in `topics.yaml`), which is
twice as much.
"""

META_KEY: Final = b"\x00meta"
"""The reserved changelog key of a task's own row; record keys are `workspace/id` and never begin with a zero byte."""


def due_bytes(due_ms: int | None) -> bytes:
    """Return eight bytes that sort as the instants do; `NEVER` for None."""
    return NEVER if due_ms is None else _U64.pack(due_ms + _SHIFT)


def due_ms(data: bytes) -> int | None:
    """Return the instant of a row's due bytes, in epoch milliseconds; None if the key has no timer."""
    return None if data == NEVER else int(_U64.unpack(data)[0]) - _SHIFT


def row_of(version: int, state: bytes) -> bytes:
    """Return a row. `state` is `due | payload`, or empty for a deleted key."""
    return _U64.pack(version) + state


def row_after(before: bytes | None, due_ms: int | None, payload: bytes) -> bytes | None:
    """Return the key's next row; None if the row `before` has this timer and payload already."""
    due = due_bytes(due_ms)
    if before is None:
        return b"".join((_FIRST, due, payload))
    # Hot: once for each changed key. States have kilobytes, so each copy of one is measurable.
    if len(before) == _STATE_AT + len(payload) and before.endswith(payload) and before[_DUE_AT:_STATE_AT] == due:
        return None
    return b"".join((_U64.pack(row_version(before) + 1), due, payload))


def gone_after(before: bytes | None) -> bytes | None:
    """Return the key's row after a deletion; None if it has no state."""
    return None if before is None or len(before) == _DUE_AT else _U64.pack(row_version(before) + 1)


def row_version(row: bytes | None) -> int:
    """Return the row's version; 0 without a row."""
    return NO_VERSION if row is None else int(_U64.unpack_from(row)[0])


def row_due(row: bytes | None) -> bytes | None:
    """Return the due bytes of a row with a timer, else None."""
    if row is None or len(row) < _STATE_AT:
        return None
    due = row[_DUE_AT:_STATE_AT]
    return None if due == NEVER else due


def row_state(row: bytes | None) -> bytes:
    """Return `due | payload`; empty without a row or for a deleted key."""
    return b"" if row is None else row[_DUE_AT:]
