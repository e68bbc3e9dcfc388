"""Pure core: what is kept about one user, changed in place on the hot path, and its bytes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import msgspec

from starling_segments.aggregates.accumulators import Chain
from starling_segments.engine.sequences.parts import in_order
from starling_segments.engine.serialisation import PackedLeaves, Timers, dec_hook, enc_hook

if TYPE_CHECKING:
    KeptMemberships: TypeAlias = "dict[str, Membership] | msgspec.Raw"
else:
    # As it is read: most events change no membership, and what is not asked for passes through as the bytes it is.
    KeptMemberships = msgspec.Raw

FORMAT = 8
"""The first byte of an encoded state. A new format gets the next number and keeps reading the older ones.

1: traits as MessagePack · 2: traits as JSON text · 3: the user's id, lists and account as well ·
4: what the account was told · 5: leaves and timers packed, no longer mappings ·
6: what waits for a window in the past, in panes where it is much · 7: what a sequence keeps of an event in order, not by name ·
8: the lengths of what leaves keep in one byte each.
"""


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


class AccountTally(msgspec.Struct, array_like=True, gc=False):
    """The user's account. `others`: condition's identity -> how many other users it has, and how many of them fulfil it."""

    id: str
    others: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)


class Belonging(msgspec.Struct, array_like=True, gc=False):
    """Which account a user belongs to (None: to none any more), and what was last told, and to which account (None: nothing)."""

    account: str | None
    told: str | None = None
    answers: dict[str, bool] = msgspec.field(default_factory=dict)


class UserState(msgspec.Struct, array_like=True, gc=False):
    """All that is kept about one user. Times are epoch ms.

    `known`: an event or a profile record was seen. `clock`: the last instant evaluated. `traits_json`: the profile's
    snapshot, computed ones under `computed`. `accumulators`: what is kept for each leaf, the leaf knows which `Accumulator`
    it is. `memberships_kept`: still encoded until they are asked for. `due`: the next instant at which each leaf's truth can
    change by itself. `waiting`: ascending by time, then by arrival. `user_id`: set by the caller before the first step.
    `lists`: keys of the uploaded lists that the user is on. `belongs`: None for whoever never had an account; `account`:
    what is known of it.
    """

    known: bool = False
    clock: int = 0
    traits_json: str = "{}"
    anonymous_ids: list[str] = msgspec.field(default_factory=list)
    accumulators: PackedLeaves = msgspec.field(default_factory=PackedLeaves)
    memberships_kept: KeptMemberships = msgspec.field(default_factory=dict)
    due: Timers = msgspec.field(default_factory=Timers)
    waiting: list[Waiting] = msgspec.field(default_factory=list)
    user_id: str = ""
    lists: list[str] = msgspec.field(default_factory=list)
    account: AccountTally | None = None
    belongs: Belonging | None = None

    @property
    def traits(self) -> Mapping[str, Any]:
        """The traits, to be read only."""
        return _parsed(self.traits_json)

    @property
    def memberships(self) -> dict[str, Membership]:
        """Segment key -> the user's membership, for all segments that were ever true; to be changed in place."""
        kept: Any = self.memberships_kept
        if kept.__class__ is _RAW:
            kept = self.memberships_kept = _decode_memberships(kept)
        return kept  # type: ignore[no-any-return]  # hot: a cast is a call


class _State1(msgspec.Struct, array_like=True):
    """A state of format 1."""

    known: bool
    clock: int
    traits: dict[str, Any]
    anonymous_ids: list[str]
    accumulators: PackedLeaves
    memberships: dict[str, Membership]
    due: Timers
    waiting: list[Waiting]


_encode_into = msgspec.msgpack.Encoder(enc_hook=enc_hook).encode_into
_decoder = msgspec.msgpack.Decoder(UserState, dec_hook=dec_hook)
_decode_format_1 = msgspec.msgpack.Decoder(_State1, dec_hook=dec_hook).decode
_decode_memberships = msgspec.msgpack.Decoder(dict[str, Membership]).decode
_FORMAT_BYTE = bytes([FORMAT])
_READ_AS_IT_IS = (_FORMAT_BYTE, b"\x07")
_LIKE_NOW = (b"\x06", b"\x05", b"\x04", b"\x03", b"\x02")
"""What was added since to the end of a state, or of a part of it, is missing in the older one, and empty then."""
_RAW = msgspec.Raw
_BUFFER_BYTES = 1 << 16
_buffers: list[bytearray] = []
"""To write states into, one for each thread at most: a buffer that has grown already spares growing another."""


def encode_state(state: UserState) -> bytes:
    """The format's number in one byte, then MessagePack."""
    try:
        buffer = _buffers.pop()
    except IndexError:
        buffer = bytearray(_FORMAT_BYTE)
    _encode_into(state, buffer, 1)
    data = bytes(buffer)
    if len(data) <= _BUFFER_BYTES:
        _buffers.append(buffer)
    return data


def decode_state(data: bytes) -> UserState:
    """The inverse of `encode_state`, of every format so far.

    Raises: UnknownStateFormat.
    """
    try:
        if data[:1] in _READ_AS_IT_IS:
            return _decoder.decode(memoryview(data)[1:])
        if data[:1] in _LIKE_NOW:
            return _with_sequences_of_now(_decoder.decode(memoryview(data)[1:]))
        if data[:1] == b"\x01":
            return _with_sequences_of_now(_from_format_1(data[1:]))
    except msgspec.DecodeError as error:
        raise UnknownStateFormat(str(error)) from error
    raise UnknownStateFormat(f"state format {data[:1].hex() or 'of no bytes'}, expected at most {_FORMAT_BYTE.hex()}")


def plain(state: UserState) -> dict[str, Any]:
    """All that is kept, by the names of the fields, as built-in types; leaves and timers by leaf, whatever their order."""
    state.memberships_kept = state.memberships
    found: dict[str, Any] = msgspec.to_builtins(
        {name: getattr(state, name) for name in state.__struct_fields__}, enc_hook=_by_leaf, str_keys=True
    )
    return found


def traits_text(traits: Mapping[str, Any]) -> str:
    """Traits as `UserState.traits_json` holds them."""
    return msgspec.json.encode(traits).decode()


def _from_format_1(data: bytes) -> UserState:
    old = _decode_format_1(data)
    state = UserState(old.known, old.clock, traits_text(old.traits), old.anonymous_ids, old.accumulators)
    state.memberships_kept, state.due, state.waiting = old.memberships, old.due, old.waiting
    return state


def _with_sequences_of_now(state: UserState) -> UserState:
    """What sequences keep was written by name once."""
    for leaf_id in state.accumulators:
        chain = state.accumulators.get(leaf_id)
        if isinstance(chain, Chain):
            for link in chain.links:
                link.kept = in_order(link.kept)
    return state


def _by_leaf(value: object) -> object:
    return cast("PackedLeaves | Timers", value).by_leaf()


@lru_cache(4096)
def _parsed(traits_json: str) -> dict[str, Any]:
    # A burst of events of one user asks for the same text again and again.
    return cast("dict[str, Any]", msgspec.json.decode(traits_json))
