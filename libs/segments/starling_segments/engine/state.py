"""Pure core: the state of one user and its serialisation. The hot path changes it in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import msgspec

from starling_segments.aggregates.accumulators import Chain
from starling_segments.engine.sequences.parts import in_order
from starling_segments.engine.serialisation import PackedLeaves, Timers, dec_hook, enc_hook, enc_hook_of_format_7

if TYPE_CHECKING:
    KeptMemberships: TypeAlias = "dict[str, Membership] | msgspec.Raw"
else:
    # Most events change no membership: the encoded memberships stay bytes until they are read.
    KeptMemberships = msgspec.Raw

FORMAT = 8
"""The first byte of an encoded state. A new format gets the next number; older formats stay readable.

1: traits as MessagePack · 2: traits as JSON text · 3: user id, lists and account · 4: answers reported to the account ·
5: accumulators and timers packed instead of mappings · 6: matches before a `between_ago` window, in panes where they are many ·
7: captured values of sequences in order instead of by name · 8: lengths of accumulators in one byte each.
"""

FORMAT_BEFORE: Final = FORMAT - 1
"""The other format that can be written: a new format keeps the encoder of the one before it, and drops the older one."""

WRITTEN_FORMAT: Final = 8
"""The format that is written by default: the newest one that the last release (0.1.0) reads, so that it can be deployed again.

A new `FORMAT` leaves it unchanged until the release after its own.
"""


class UnknownStateFormat(ValueError):
    """The bytes were written by a newer version, or are not a state."""


class Membership(msgspec.Struct, array_like=True, gc=False):
    """The membership of a user in one segment. `sequence`: number of changes so far; `version`: of the definition last evaluated;
    `entered_at`: epoch ms of the last entry, 0 before the first.
    """

    member: bool = False
    sequence: int = 0
    version: int = 1
    entered_at: int = 0


class FutureMatch(msgspec.Struct, array_like=True, gc=False):
    """A match whose time stream time has not reached (at most 5 minutes ahead under the wall clock)."""

    time: int
    leaf: str
    payload: Any


class AccountTally(msgspec.Struct, array_like=True, gc=False):
    """The user's account. `others`: condition id -> number of other users, and how many of them fulfil the condition."""

    id: str
    others: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)


class Belonging(msgspec.Struct, array_like=True, gc=False):
    """The user's account (None: no account), the account that the last answers were reported to, and these answers."""

    account: str | None
    reported_to: str | None = None
    answers: dict[str, bool] = msgspec.field(default_factory=dict)


class UserState(msgspec.Struct, array_like=True, gc=False):
    """The state of one user. Times are epoch ms.

    `known`: an event or a profile has arrived. `clock`: the last instant evaluated. `traits_json`: the traits of the profile,
    computed ones under `computed`. `accumulators`: leaf node id -> accumulator. `memberships_kept`: encoded until they are read.
    `due`: leaf node id -> the next instant at which time alone can change its truth. `waiting`: future matches, ascending by time,
    then by arrival. `user_id`: set by the caller before the first step. `lists`: keys of the uploaded lists with the user.
    `belongs`: None for a user who never had an account. `account`: the answers of the account's other users.
    """

    known: bool = False
    clock: int = 0
    traits_json: str = "{}"
    anonymous_ids: list[str] = msgspec.field(default_factory=list)
    accumulators: PackedLeaves = msgspec.field(default_factory=PackedLeaves)
    memberships_kept: KeptMemberships = msgspec.field(default_factory=dict)
    due: Timers = msgspec.field(default_factory=Timers)
    waiting: list[FutureMatch] = msgspec.field(default_factory=list)
    user_id: str = ""
    lists: list[str] = msgspec.field(default_factory=list)
    account: AccountTally | None = None
    belongs: Belonging | None = None

    @property
    def traits(self) -> Mapping[str, Any]:
        """The traits; not to be changed."""
        return _parsed(self.traits_json)

    @property
    def memberships(self) -> dict[str, Membership]:
        """Segment key -> membership, of all segments that the user ever entered; may be changed in place."""
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
    waiting: list[FutureMatch]


_encode_into = msgspec.msgpack.Encoder(enc_hook=enc_hook).encode_into
_encode_before = msgspec.msgpack.Encoder(enc_hook=enc_hook_of_format_7).encode
_decoder = msgspec.msgpack.Decoder(UserState, dec_hook=dec_hook)
_decode_format_1 = msgspec.msgpack.Decoder(_State1, dec_hook=dec_hook).decode
_decode_memberships = msgspec.msgpack.Decoder(dict[str, Membership]).decode
_FORMAT_BYTE = bytes([FORMAT])
_FORMAT_BEFORE_BYTE = bytes([FORMAT_BEFORE])
_READ_AS_IT_IS = (_FORMAT_BYTE, _FORMAT_BEFORE_BYTE)
_LIKE_NOW = (b"\x06", b"\x05", b"\x04", b"\x03", b"\x02")
"""Fields that were added later are missing at the end of an older state; they get their defaults."""
_RAW = msgspec.Raw
_BUFFER_BYTES = 1 << 16
_buffers: list[bytearray] = []
"""Reusable write buffers, at most one for each thread: a grown buffer avoids allocations."""


def encode_state(state: UserState) -> bytes:
    """Return the number of the newest format in one byte, then MessagePack."""
    try:
        buffer = _buffers.pop()
    except IndexError:
        buffer = bytearray(_FORMAT_BYTE)
    _encode_into(state, buffer, 1)
    data = bytes(buffer)
    if len(data) <= _BUFFER_BYTES:
        _buffers.append(buffer)
    return data


def state_encoder(number: int) -> Callable[[UserState], bytes]:
    """Return the function that encodes states in that format. Raises: ValueError unless this version can write it."""
    if number == FORMAT:
        return encode_state
    if number == FORMAT_BEFORE:
        return _encode_format_before
    raise ValueError(f"state format {number}: this version writes the formats {FORMAT_BEFORE} and {FORMAT}")


def _encode_format_before(state: UserState) -> bytes:
    return _FORMAT_BEFORE_BYTE + _encode_before(state)


def decode_state(data: bytes) -> UserState:
    """Return the state that was encoded in this or any older format.

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
    """Return the state's fields by name as built-in types, accumulators and timers by leaf node id."""
    state.memberships_kept = state.memberships
    found: dict[str, Any] = msgspec.to_builtins(
        {name: getattr(state, name) for name in state.__struct_fields__}, enc_hook=_by_leaf, str_keys=True
    )
    return found


def traits_text(traits: Mapping[str, Any]) -> str:
    """Return traits in the form of `UserState.traits_json`."""
    return msgspec.json.encode(traits).decode()


def _from_format_1(data: bytes) -> UserState:
    old = _decode_format_1(data)
    state = UserState(old.known, old.clock, traits_text(old.traits), old.anonymous_ids, old.accumulators)
    state.memberships_kept, state.due, state.waiting = old.memberships, old.due, old.waiting
    return state


def _with_sequences_of_now(state: UserState) -> UserState:
    """Convert the captured values of sequences, which older formats stored by name."""
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
    # A burst of events of one user reads the same traits repeatedly.
    return cast("dict[str, Any]", msgspec.json.decode(traits_json))
