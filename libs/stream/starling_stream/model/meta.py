"""Pure core: a task's own row, and its bytes."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec


class TaskMeta(msgspec.Struct, array_like=True, frozen=True):
    """A task's own row, written in the same transaction as the states.

    `units` counts the units of work, `stream_time_ms` is in epoch milliseconds, `plan` names the plan that the task's keys were
    last switched to. `offsets` are the next offsets of the inputs; they are empty in rows of release 0.1.0. `order` is the last
    one that the task gave to an output, or processed; 0 for none. `beyond` has the records after the next offsets that were
    processed too, because records of several sources lie across one another in a topic: for each topic the first offset of a range,
    the one after its last, and so on. `over_ms` is the last instant that `Service.on_instant_over` received, and `received_at` the
    greatest one (µs) of the records and outputs until then and since; both stay at their defaults without that function.
    """

    units: int = 0
    stream_time_ms: int = 0
    plan: bytes = b""
    offsets: Mapping[str, int] = {}
    order: int = 0
    beyond: Mapping[str, Sequence[int]] = {}
    over_ms: int = -1
    received_at: int = 0


_META_FORMAT: Final = b"\x01"
_BEYOND_FORMAT: Final = b"\x02"
"""The format of rows with `beyond`: an older release would process those records again, and refuses the row."""
_encode_meta = msgspec.msgpack.Encoder().encode
_decode_meta = msgspec.msgpack.Decoder(TaskMeta).decode


def encode_meta(meta: TaskMeta) -> bytes:
    """Return the bytes of a task's own row: a format version, then MessagePack."""
    return (_BEYOND_FORMAT if meta.beyond else _META_FORMAT) + _encode_meta(meta)


def decode_meta(data: bytes) -> TaskMeta:
    """Return the decoded row. Raises: ValueError for an unknown format."""
    if data[:1] not in (_META_FORMAT, _BEYOND_FORMAT):
        raise ValueError(f"task row of format {data[:1]!r} was written by a newer version: deploy that version again")
    return _decode_meta(data[1:])
