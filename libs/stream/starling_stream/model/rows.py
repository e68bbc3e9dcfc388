"""Pure core, hot path: the bytes of one key's row, as kept locally and as written to the changelog.

A local row is `version (8 bytes) | due (8 bytes) | payload`, big-endian; `due` is the next instant at which the key wants to be
fired, in epoch milliseconds, shifted so that the order of the bytes is the order of the instants; all ones mean never.
A row of a key that was deleted is its version alone: versions of a key never go back, not even over a deletion.
The changelog's `StateChanged.state` is the row without its version: `due (8 bytes) | payload`.
"""

import struct
from typing import Final

_U64: Final = struct.Struct(">Q")
_SHIFT: Final = 1 << 63
FIRST_MS: Final = -_SHIFT
"""The first instant that a row can be due at."""

NEVER: Final = b"\xff" * 8
"""The due bytes of a key that waits for nothing."""

NO_VERSION: Final = 0
_FIRST: Final = _U64.pack(NO_VERSION + 1)
_DUE_AT: Final = 8
_STATE_AT: Final = 16

MAX_STATE_BYTES: Final = 4 * 1024 * 1024
"""A record that would make a key's state larger is refused. What timers and new definitions add has room up to what a record of the
changelog may have (`max_record` in `topics.yaml`): twice as much.
"""

META_KEY: Final = b"\x00meta"
"""The reserved changelog key of a task's own row; record keys are `workspace/id` and never begin with a zero byte."""


def due_bytes(due_ms: int | None) -> bytes:
    """Eight bytes that sort as the instants do; `NEVER` for None."""
    return NEVER if due_ms is None else _U64.pack(due_ms + _SHIFT)


def due_ms(data: bytes) -> int | None:
    """The inverse of `due_bytes`."""
    return None if data == NEVER else int(_U64.unpack(data)[0]) - _SHIFT


def row_of(version: int, state: bytes) -> bytes:
    """`state` is `due | payload`, or empty for a key that is gone."""
    return _U64.pack(version) + state


def row_after(before: bytes | None, due_ms: int | None, payload: bytes) -> bytes | None:
    """The row of a key that is to be due then and to keep that; None when it is so already, by its row `before`."""
    due = due_bytes(due_ms)
    if before is None:
        return b"".join((_FIRST, due, payload))
    # Hot: once for each changed key; states take kilobytes, and each copy of one shows.
    if len(before) == _STATE_AT + len(payload) and before.endswith(payload) and before[_DUE_AT:_STATE_AT] == due:
        return None
    return b"".join((_U64.pack(row_version(before) + 1), due, payload))


def gone_after(before: bytes | None) -> bytes | None:
    """As `row_after`, of a key that is to have no state."""
    return None if before is None or len(before) == _DUE_AT else _U64.pack(row_version(before) + 1)


def row_version(row: bytes | None) -> int:
    """The row's version; 0 when there is none."""
    return NO_VERSION if row is None else int(_U64.unpack_from(row)[0])


def row_due(row: bytes | None) -> bytes | None:
    """The due bytes of a row that waits for an instant, else None."""
    if row is None or len(row) < _STATE_AT:
        return None
    due = row[_DUE_AT:_STATE_AT]
    return None if due == NEVER else due


def row_state(row: bytes | None) -> bytes:
    """`due | payload`; empty when there is no row or the key is gone."""
    return b"" if row is None else row[_DUE_AT:]
