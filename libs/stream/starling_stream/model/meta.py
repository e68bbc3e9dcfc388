"""Pure core: what a task remembers about itself, and its bytes."""

from typing import Final

import msgspec


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
