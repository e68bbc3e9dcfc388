"""Pure core: what is kept about one user, changed in place on the hot path, and its bytes."""

from __future__ import annotations

from typing import Any

import msgspec

from starling_segments.accumulators import Accumulator

FORMAT = 1
"""The first byte of an encoded state. A new format gets the next number and keeps reading the older ones."""


class UnknownStateFormat(ValueError):
    """The bytes were written by a newer version, or are no state at all."""


class Membership(msgspec.Struct, array_like=True, gc=False):
    """One user and one segment. `sequence`: changes so far; `version`: of the definition last evaluated;
    `entered_at`: epoch ms of the last entry, 0 before the first.
    """

    member: bool = False
    sequence: int = 0
    version: int = 1
    entered_at: int = 0


class Waiting(msgspec.Struct, array_like=True, gc=False):
    """A match whose time is still to come (the wall clock allows 5 minutes): folded when that time is reached."""

    time: int
    leaf: str
    payload: Any


class UserState(msgspec.Struct, array_like=True, gc=False):
    """All that is kept about one user. Times are epoch ms.

    `known`: an event or a profile record was seen. `clock`: the last instant evaluated. `traits`: the profile's
    snapshot, computed ones under `computed`. `accumulators`: leaf identity -> what is kept for it. `due`: leaf identity
    -> the next instant at which its truth can change by itself. `waiting`: ascending by time, then by arrival.
    """

    known: bool = False
    clock: int = 0
    traits: dict[str, Any] = msgspec.field(default_factory=dict)
    anonymous_ids: list[str] = msgspec.field(default_factory=list)
    accumulators: dict[str, Accumulator] = msgspec.field(default_factory=dict)
    memberships: dict[str, Membership] = msgspec.field(default_factory=dict)
    due: dict[str, int] = msgspec.field(default_factory=dict)
    waiting: list[Waiting] = msgspec.field(default_factory=list)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(UserState)
_FORMAT_BYTE = bytes([FORMAT])


def encode_state(state: UserState) -> bytes:
    """The format's number in one byte, then MessagePack."""
    return _FORMAT_BYTE + _encoder.encode(state)


def decode_state(data: bytes) -> UserState:
    """The inverse of `encode_state`.

    Raises: UnknownStateFormat.
    """
    if data[:1] != _FORMAT_BYTE:
        raise UnknownStateFormat(f"state format {data[:1].hex() or 'of no bytes'}, expected {_FORMAT_BYTE.hex()}")
    try:
        return _decoder.decode(memoryview(data)[1:])
    except msgspec.DecodeError as error:
        raise UnknownStateFormat(str(error)) from error
