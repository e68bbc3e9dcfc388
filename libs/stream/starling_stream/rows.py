"""Pure core: the bytes of one key's row, as kept locally and as written to the changelog.

A local row is `version (8 bytes) | due (8 bytes) | payload`, big-endian; `due` is the next instant at which the key wants to be
fired, in epoch milliseconds, shifted so that the order of the bytes is the order of the instants; all ones mean never.
A row of a key that was deleted is its version alone: versions of a key never go back, not even over a deletion.
The changelog's `StateChanged.state` is the row without its version: `due (8 bytes) | payload`.
"""

import struct
from typing import Final

import msgspec

_U64: Final = struct.Struct(">Q")
_SHIFT: Final = 1 << 63
FIRST_MS: Final = -_SHIFT
"""The first instant that a row can be due at."""

NEVER: Final = b"\xff" * 8
"""The due bytes of a key that waits for nothing."""

NO_VERSION: Final = 0

MAX_STATE_BYTES: Final = 4 * 1024 * 1024
"""A record that would make a key's state larger is refused. What timers and new definitions add has room up to what a record of the
changelog may have (`max_record` in `topics.yaml`): twice as much.
"""

META_KEY: Final = b"\x00meta"
"""The reserved changelog key of a task's own row; record keys are `workspace/id` and never begin with a zero byte."""


class TaskMeta(msgspec.Struct, array_like=True, frozen=True):
    """What a task remembers about itself; it travels with the states, in the same transaction.

    `units` grows by one for each unit of work, `stream_time_ms` is epoch milliseconds, `plan` is the name of the plan that
    the task's keys were last switched to.
    """

    units: int = 0
    stream_time_ms: int = 0
    plan: bytes = b""


_META_FORMAT: Final = b"\x01"
_encode_meta = msgspec.msgpack.Encoder().encode
_decode_meta = msgspec.msgpack.Decoder(TaskMeta).decode


def encode_meta(meta: TaskMeta) -> bytes:
    """A task's own row: a version of the format, then MessagePack."""
    return _META_FORMAT + _encode_meta(meta)


def decode_meta(data: bytes) -> TaskMeta:
    """Raises: ValueError for a format this version does not know."""
    if data[:1] != _META_FORMAT:
        raise ValueError(f"task row of format {data[:1]!r} was written by a newer version: do not go back")
    return _decode_meta(data[1:])


def due_bytes(due_ms: int | None) -> bytes:
    """Eight bytes that sort as the instants do; `NEVER` for None."""
    return NEVER if due_ms is None else _U64.pack(due_ms + _SHIFT)


def due_ms(data: bytes) -> int | None:
    """The inverse of `due_bytes`."""
    return None if data == NEVER else int(_U64.unpack(data)[0]) - _SHIFT


def row_of(version: int, state: bytes) -> bytes:
    """`state` is `due | payload`, or empty for a key that is gone."""
    return _U64.pack(version) + state


def row_version(row: bytes | None) -> int:
    """The row's version; 0 when there is none."""
    return NO_VERSION if row is None else int(_U64.unpack_from(row)[0])


def row_due(row: bytes | None) -> bytes | None:
    """The due bytes of a row that waits for an instant, else None."""
    if row is None or len(row) < 16:
        return None
    due = row[8:16]
    return None if due == NEVER else due


def row_state(row: bytes | None) -> bytes:
    """`due | payload`; empty when there is no row or the key is gone."""
    return b"" if row is None else row[8:]
