"""Pure core: the profile of one user, and its changes by calls and computed traits."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from starling_common.outcome import Refused, Skipped
from starling_items.dedupe import SeenBefore, SeenMessages, from_format_1, to_format_1
from starling_items.item import RESERVED_TRAIT, Json

MAX_ANONYMOUS_IDS: Final = 100
"""Most anonymous ids of a profile; the latest are kept. A shared device creates thousands, and every event contains the list."""

MAX_ANONYMOUS_ID_BYTES: Final = 16_384
"""Most bytes of a profile's anonymous ids together; the latest are kept, so that a record fits the broker's limit."""

_STORED_BYTES_TO_CHECK: Final = 65_536
"""A stored profile up to this size cannot contain enough anonymous ids to exceed a record's limit."""

MAX_TRAITS_BYTES: Final = 65_536
"""Most bytes of a profile's traits. Every event contains them, and it must fit the broker's record limit."""

FORMAT: Final = 2
"""First byte of a stored profile. A changed layout gets the next number, and `decode_profile` must still read the old ones."""

FORMAT_BEFORE: Final = FORMAT - 1
"""The other format that can be written: a new format keeps the encoder of the one before it, and drops the older one."""

WRITTEN_FORMAT: Final = 2
"""The format that is written by default. 0.1.0 reads only format 1, but cannot be deployed again: the deploy step moves its tables.

A new `FORMAT` leaves it unchanged until the release after its own.
"""


class Computation(msgspec.Struct, array_like=True, frozen=True):
    """The computation in force of a computed trait: the version of its definition, and the stream time of its value.

    `epoch` and `sequence` order the values of a version; both are 0 of a producer that does not count. States that were stored
    without them have 0, and a release before them ignores both.
    """

    version: int
    as_of_ms: int
    epoch: int = 0
    sequence: int = 0

    def is_outdated_by(self, held: "Computation") -> bool:
        """Return whether this value is a repetition, or older than the held one. Without counting the stream time decides."""
        if self.epoch or self.sequence:
            return (self.version, self.epoch, self.sequence) <= (held.version, held.epoch, held.sequence)
        return (self.version, self.as_of_ms) < (held.version, held.as_of_ms)


class Profile(msgspec.Struct, array_like=True):
    """The state of one user. `traits_json` is already encoded, so that an event that changes no trait needs no encoding."""

    traits_json: str = "{}"
    anonymous_ids: list[str] = []
    group_id: str | None = None
    seen: SeenMessages = msgspec.field(default_factory=SeenMessages)
    computations: dict[str, Computation] = {}


class Changed(msgspec.Struct, frozen=True):
    """The new traits as JSON, and the names of the traits that changed."""

    traits_json: str
    names: list[str]


class _ProfileBefore(msgspec.Struct, array_like=True):
    """A profile of format 1, which stored the ids of messages one by one."""

    traits_json: str = "{}"
    anonymous_ids: list[str] = []
    group_id: str | None = None
    seen: SeenBefore = msgspec.field(default_factory=SeenBefore)
    computations: dict[str, Computation] = {}


_FORMAT_BYTE: Final = bytes([FORMAT])
_FORMAT_1: Final = b"\x01"
_STATE: Final = msgspec.msgpack.Decoder(Profile)
_STATE_1: Final = msgspec.msgpack.Decoder(_ProfileBefore)


def encode_profile(profile: Profile) -> bytes:
    """Return the stored form of a profile, in the newest format."""
    return _FORMAT_BYTE + msgspec.msgpack.encode(profile)


def profile_encoder(number: int) -> Callable[[Profile], bytes]:
    """Return the function that encodes profiles in that format. Raises: ValueError unless this version can write it."""
    if number == FORMAT:
        return encode_profile
    if number == FORMAT_BEFORE:
        return _encode_format_1
    raise ValueError(f"profile format {number}: this version writes the formats {FORMAT_BEFORE} and {FORMAT}")


def _encode_format_1(profile: Profile) -> bytes:
    seen = to_format_1(profile.seen)
    before = _ProfileBefore(profile.traits_json, profile.anonymous_ids, profile.group_id, seen, profile.computations)
    return _FORMAT_1 + msgspec.msgpack.encode(before)


def decode_profile(data: bytes) -> Profile:
    """Return the profile of its stored form. Raises: ValueError if the format is unknown."""
    if data[:1] == _FORMAT_BYTE:
        profile = _STATE.decode(memoryview(data)[1:])
    elif data[:1] == _FORMAT_1:
        before = _STATE_1.decode(memoryview(data)[1:])
        profile = Profile(
            before.traits_json, before.anonymous_ids, before.group_id, from_format_1(before.seen), before.computations
        )
    else:
        raise ValueError(f"a stored profile of format {data[:1].hex() or 'none'} was written by a newer version: run that version")
    if len(data) > _STORED_BYTES_TO_CHECK:
        # Release 0.1.0 stored ids of any length; such a profile can exceed the broker's record limit.
        _keep_latest(profile.anonymous_ids)
    return profile


def merge_traits(traits_json: str, sent: Mapping[str, Any]) -> Changed | Refused:
    """Return the traits after an `identify`: top-level keys are merged, nested values are replaced whole, null removes a key."""
    traits: Json = msgspec.json.decode(traits_json)
    names = [name for name, value in sent.items() if not same_json(traits.get(name), value)]
    for name in names:
        _assign(traits, name, sent[name])
    return _changed(traits, names) if names else Changed(traits_json, [])


def set_computed(profile: Profile, key: str, value: Any, computation: Computation) -> Changed | Refused | Skipped:
    """Return the traits with a new value of a computed trait (None removes it); no names if the value is unchanged.

    Skipped if this computation or a newer one is in force: a record can be written again, or read again after a newer one.
    """
    in_force = profile.computations.get(key)
    if in_force is not None and computation.is_outdated_by(in_force):
        return Skipped("older_computation")
    traits: Json = msgspec.json.decode(profile.traits_json)
    computed: Json = traits.get(RESERVED_TRAIT, {})
    if same_json(computed.get(key), value):
        return Changed(profile.traits_json, [])
    _assign(computed, key, value)
    _assign(traits, RESERVED_TRAIT, computed or None)
    return _changed(traits, [f"{RESERVED_TRAIT}.{key}"])


def add_anonymous_id(anonymous_ids: list[str], anonymous_id: str) -> None:
    """Append the id unless the list contains it. Changes the list in place."""
    if anonymous_id not in anonymous_ids:
        anonymous_ids.append(anonymous_id)
        _keep_latest(anonymous_ids)


def same_json(one: Any, other: Any) -> bool:
    """Return whether two values are equal as JSON: `1`, `1.0` and `true` differ, and the order of an object's keys is ignored."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict | list):
        return msgspec.json.encode(one, order="sorted") == msgspec.json.encode(other, order="sorted")
    return bool(one == other)


def _keep_latest(anonymous_ids: list[str]) -> None:
    """Drop the oldest ids beyond `MAX_ANONYMOUS_IDS` and `MAX_ANONYMOUS_ID_BYTES`. Changes the list in place."""
    del anonymous_ids[:-MAX_ANONYMOUS_IDS]
    size = sum(len(anonymous_id.encode()) for anonymous_id in anonymous_ids)
    while size > MAX_ANONYMOUS_ID_BYTES:
        size -= len(anonymous_ids.pop(0).encode())


def _assign(values: Json, name: str, value: Any) -> None:
    if value is None:
        values.pop(name, None)
    else:
        values[name] = value


def _changed(traits: Json, names: list[str]) -> Changed | Refused:
    data = msgspec.json.encode(traits)
    if len(data) > MAX_TRAITS_BYTES:
        return Refused(
            "profile_too_large",
            f"traits: the profile would have {len(data)} bytes, over {MAX_TRAITS_BYTES}: send null for traits to remove them",
        )
    return Changed(data.decode(), names)
