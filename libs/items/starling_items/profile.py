"""Pure core: what is kept about one user, and how calls and computed traits change it."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from starling_common.outcome import Refused, Skipped
from starling_items.dedupe import Seen
from starling_items.item import RESERVED_TRAIT, Json

MAX_ANONYMOUS_IDS: Final = 100
"""The latest are kept: a shared device in a shop makes thousands, and every event carries the list."""

MAX_ANONYMOUS_ID_BYTES: Final = 16_384
"""Of all anonymous ids of a profile together. The latest are kept, so that a record of the profile fits the broker's limit."""

_STORED_BYTES_TO_CHECK: Final = 65_536
"""A smaller stored profile cannot hold anonymous ids that matter for the size of a record."""

MAX_TRAITS_BYTES: Final = 65_536
"""Every event carries the traits; without a bound one user could outgrow the broker's largest record."""

FORMAT: Final = b"\x01"
"""First byte of a stored profile; a changed layout gets the next number, and `decode_profile` keeps reading the old ones."""


class Computation(msgspec.Struct, array_like=True, frozen=True):
    """Which computation of a computed trait is in force: its definition's version, and the stream time it reflects."""

    version: int
    as_of_ms: int


class Profile(msgspec.Struct, array_like=True):
    """One user. `traits_json` is the snapshot as events carry it, so that an event that changes no trait encodes none."""

    traits_json: str = "{}"
    anonymous_ids: list[str] = []
    group_id: str | None = None
    seen: Seen = msgspec.field(default_factory=Seen)
    computations: dict[str, Computation] = {}


class Changed(msgspec.Struct, frozen=True):
    """New traits as JSON, and the names of those that differ."""

    traits_json: str
    names: list[str]


_STATE: Final = msgspec.msgpack.Decoder(Profile)


def encode_profile(profile: Profile) -> bytes:
    """A profile as stored."""
    return FORMAT + msgspec.msgpack.encode(profile)


def decode_profile(data: bytes) -> Profile:
    """The inverse. Raises: ValueError when the bytes are no profile of a format known here."""
    if data[:1] != FORMAT:
        raise ValueError(f"a stored profile of format {data[:1].hex() or 'none'} was written by a newer version: run that version")
    profile = _STATE.decode(memoryview(data)[1:])
    if len(data) > _STORED_BYTES_TO_CHECK:
        # Release 0.1.0 stored ids of any length; such a profile can outgrow the broker's largest record.
        _keep_latest(profile.anonymous_ids)
    return profile


def merge_traits(traits_json: str, sent: Mapping[str, Any]) -> Changed | Refused:
    """Traits after an `identify`: merged key by key at the top level, nested values replaced whole, null removes."""
    traits: Json = msgspec.json.decode(traits_json)
    names = [name for name, value in sent.items() if not same_json(traits.get(name), value)]
    for name in names:
        _assign(traits, name, sent[name])
    return _changed(traits, names) if names else Changed(traits_json, [])


def set_computed(profile: Profile, key: str, value: Any, computation: Computation) -> Changed | Refused | Skipped:
    """Traits after a computed trait took a value (None: it has none any more); no names when it had that value already.

    Skipped when a newer computation is in force: records may come again, and then in an older order.
    """
    in_force = profile.computations.get(key)
    if in_force is not None and (computation.version, computation.as_of_ms) < (in_force.version, in_force.as_of_ms):
        return Skipped("older_computation")
    traits: Json = msgspec.json.decode(profile.traits_json)
    computed: Json = traits.get(RESERVED_TRAIT, {})
    if same_json(computed.get(key), value):
        return Changed(profile.traits_json, [])
    _assign(computed, key, value)
    _assign(traits, RESERVED_TRAIT, computed or None)
    return _changed(traits, [f"{RESERVED_TRAIT}.{key}"])


def add_anonymous_id(anonymous_ids: list[str], anonymous_id: str) -> None:
    """Note the id as the latest, unless it is known already. Changes the list in place."""
    if anonymous_id not in anonymous_ids:
        anonymous_ids.append(anonymous_id)
        _keep_latest(anonymous_ids)


def same_json(one: Any, other: Any) -> bool:
    """Equal as JSON, which keeps `1`, `1.0` and `true` apart and does not mind the order of an object's names."""
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
            f"traits: the profile would have {len(data)} bytes, over {MAX_TRAITS_BYTES}: remove traits by sending null for them",
        )
    return Changed(data.decode(), names)
