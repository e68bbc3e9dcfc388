"""Pure core: the bytes of `StateChanged`, written for each changed key. The general codec is too slow for that.

The layout is that of `schemas/avro/StateChanged.avsc`: the wire header, `version` as a zig-zag varint, then the branch of the union
(0: deleted, 1: a state) and for a state its length and bytes. Tests compare it with the general codec byte for byte.
"""

from typing import Final

from starling_common.wire import long_bytes

_GONE: Final = b"\x00"
_STATE: Final = b"\x02"


def encode_state_changed(header: bytes, version: int, state: bytes) -> bytes:
    """Return the encoded record. `header` is the five bytes of the wire format; an empty `state` encodes a deletion."""
    if not state:
        return header + long_bytes(version) + _GONE
    return header + long_bytes(version) + _STATE + long_bytes(len(state)) + state


def decode_state_changed(data: bytes) -> tuple[int, bytes]:
    """Return (version, state) of bytes with the id of this schema; the state of a deleted key is empty.

    Raises: ValueError for bytes that are no `StateChanged`.
    """
    try:
        version, position = _read_varint(data, 5)
        branch = data[position : position + 1]
        if branch == _GONE and position + 1 == len(data):
            return version, b""
        length, start = _read_varint(data, position + 1)
    except IndexError as cause:
        raise ValueError("the changelog contains a truncated record") from cause
    if branch != _STATE or start + length != len(data):
        raise ValueError("the changelog contains a record that is no StateChanged")
    return version, data[start:]


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number & 1:
                raise ValueError("the changelog contains a record with a negative version or length")
            return number >> 1, position
        shift += 7
