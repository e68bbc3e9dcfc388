"""Pure core, hot path: the accumulators and timers of a state, packed into runs of bytes.

A user has tens to hundreds of accumulators and an event changes a few of them. They are therefore stored side by side: an
accumulator is found by its leaf node id in one long text, decoded when it is read and written back in its position; all others
are copied as bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import msgspec

from starling_segments.aggregates.accumulators import Accumulator

ID_CHARACTERS: Final = 8
"""Length of a leaf node id."""

_WIDE_BYTES: Final = 4
_NARROW: Final = 255
"""Maximum length of an encoded accumulator that one byte can state; nearly all are shorter."""
_INSTANT_BYTES: Final = 8  # as many as an id has characters: both have the same offset
_decode = msgspec.msgpack.Decoder(Accumulator).decode
_encode = msgspec.msgpack.Encoder().encode
_encode_into = msgspec.msgpack.Encoder().encode_into
_WIDE = struct.Struct("<I")
_put_wide = _WIDE.pack_into
_ONE: Final = [bytes([size]) for size in range(_NARROW + 1)]
_INSTANT = struct.Struct("<q")
_put_instant = _INSTANT.pack_into
_instant_at = _INSTANT.unpack_from


class PackedLeaves:
    """Leaf node id -> accumulator.

    Shape: `ids` concatenated; `lengths` of the encoded accumulators in one byte each, or all in four (little endian) if one needs
    that; `kept`: the encoded accumulators in the same order. Raises: ValueError unless there is one length for each id.
    """

    def __init__(self, ids: str = "", lengths: bytes = b"", kept: bytes = b"") -> None:
        count = len(ids) // ID_CHARACTERS
        if len(ids) != count * ID_CHARACTERS or len(lengths) not in {count, count * _WIDE_BYTES} or not ids.isascii():
            raise ValueError(f"{len(lengths)} bytes of lengths for {len(ids)} characters of identities")
        self._ids = ids
        self._lengths = lengths
        self._kept = kept
        self._sizes: bytes | tuple[int, ...] = lengths if len(lengths) == count else _unpacked(lengths)
        """The lengths as numbers."""
        self._loaded: dict[str, Any] = {}
        """The accumulators read or written since decoding; None: there is none; bytes: encoded, not decoded yet."""
        self._replaced: dict[int, tuple[str, int]] = {}
        """Index -> id and offset, of the stored accumulators in `_loaded`."""
        self._added: list[str] = []
        """The ids in `_loaded` that are not stored."""

    def get(self, leaf_id: str) -> Any:
        """Return the accumulator of a leaf node, to be changed in place; None if there is none."""
        loaded = self._loaded
        if leaf_id in loaded:
            found = loaded[leaf_id]
            if found.__class__ is bytes:
                found = loaded[leaf_id] = _decode(found)
            return found
        at = _at(self._ids, leaf_id)
        if at < 0:
            loaded[leaf_id] = None
            self._added.append(leaf_id)
            return None
        place, sizes = at // ID_CHARACTERS, self._sizes
        begin = sum(sizes[:place])
        kept = _decode(self._kept[begin : begin + sizes[place]])
        loaded[leaf_id] = kept
        self._replaced[place] = (leaf_id, begin)
        return kept

    def encoded(self, leaf_id: str) -> Any:
        """Return the encoded accumulator of a leaf node, which `put` takes too; None if there is none."""
        loaded = self._loaded
        if leaf_id in loaded:
            kept = loaded[leaf_id]
            return kept if kept is None or kept.__class__ is bytes else _encode(kept)
        at = _at(self._ids, leaf_id)
        if at < 0:
            return None
        place, sizes = at // ID_CHARACTERS, self._sizes
        begin = sum(sizes[:place])
        return self._kept[begin : begin + sizes[place]]

    def put(self, leaf_id: str, kept: Any) -> None:
        """Set the accumulator of a leaf node."""
        loaded = self._loaded
        if leaf_id not in loaded:
            at = _at(self._ids, leaf_id)
            if at < 0:
                self._added.append(leaf_id)
            else:
                place, sizes = at // ID_CHARACTERS, self._sizes
                self._replaced[place] = (leaf_id, sum(sizes[:place]))
        loaded[leaf_id] = kept

    def put_first(self, leaf_id: str, fields: tuple[Any, ...]) -> None:
        """Add the accumulator of a first match, given as its tag and fields, for an id without one.

        It is encoded at once and decoded only if it is read: most are not read before the next event.
        """
        self._loaded[leaf_id] = _encode(fields)

    def drop(self, leaf_id: str) -> None:
        """Drop the accumulator of a leaf node."""
        self.put(leaf_id, None)

    def restrict(self, leaf_ids: Collection[str]) -> None:
        """Drop all other accumulators."""
        for leaf_id in list(self):
            if leaf_id not in leaf_ids:
                self.drop(leaf_id)

    def take_over(self, other: PackedLeaves) -> None:
        """Copy all accumulators of the other object, replacing those of the same leaf nodes."""
        for leaf_id in other:
            self.put(leaf_id, other.get(leaf_id))

    def by_leaf(self) -> dict[str, Any]:
        """Return a mapping."""
        return {leaf_id: self.get(leaf_id) for leaf_id in self}

    def packed(self) -> tuple[str, Any, Any]:
        """Return the parts that the constructor takes."""
        if not self._loaded:
            return self._ids, self._lengths, self._kept
        # Hot: called for each changed state.
        loaded, ids, lengths, gone = self._loaded, self._ids, bytearray(self._lengths), False
        wide = len(lengths) * ID_CHARACTERS > len(ids)
        kept, done, data = self._kept, 0, bytearray()
        if self._replaced:
            sizes = self._sizes
            for place in sorted(self._replaced):
                leaf_id, begin = self._replaced[place]
                size = sizes[place]
                if begin > done:
                    data += kept[done:begin]
                now = _written(data, loaded[leaf_id])
                gone = gone or not now
                if now != size:
                    if now > _NARROW and not wide:
                        lengths, wide = _widened(lengths), True
                    if wide:
                        _put_wide(lengths, place * _WIDE_BYTES, now)
                    else:
                        lengths[place] = now
                done = begin + size
        data += kept[done:] if done else kept
        for leaf_id in self._added:
            now = _written(data, loaded[leaf_id])
            if now:
                if now > _NARROW and not wide:
                    lengths, wide = _widened(lengths), True
                lengths += _WIDE.pack(now) if wide else _ONE[now]
                ids += leaf_id
        if gone:
            ids, lengths = _without_gaps(ids, lengths, wide)
        return ids, lengths, data

    def packed_wide(self) -> tuple[str, Any, Any]:
        """Return the parts with lengths of four bytes each, which format 7 of a state always has."""
        ids, lengths, data = self.packed()
        return ids, lengths if len(lengths) * ID_CHARACTERS > len(ids) else _widened(lengths), data

    def __iter__(self) -> Iterator[str]:
        """Iterate over the ids with an accumulator."""
        loaded, stored = self._loaded, self._ids
        ids = [stored[at : at + ID_CHARACTERS] for at in range(0, len(stored), ID_CHARACTERS)]
        present = [leaf_id for leaf_id in ids if leaf_id not in loaded or loaded[leaf_id] is not None]
        known = set(ids)
        return iter(present + [leaf_id for leaf_id, kept in loaded.items() if kept is not None and leaf_id not in known])

    def __len__(self) -> int:
        """Return the number of accumulators."""
        return len(list(iter(self)))

    def __bool__(self) -> bool:
        """Return whether there is any accumulator."""
        return len(self) > 0 if self._loaded else bool(self._ids)

    def __eq__(self, other: object) -> bool:
        """Return whether both contain the same accumulators."""
        return isinstance(other, PackedLeaves) and self.by_leaf() == other.by_leaf()

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, leaf_id: str) -> bool:
        """Return whether a leaf node has an accumulator."""
        loaded = self._loaded
        return loaded[leaf_id] is not None if leaf_id in loaded else _at(self._ids, leaf_id) >= 0


class Timers:
    """Leaf node id -> the next instant, in epoch ms, at which time alone can change its truth.

    Shape: `ids` concatenated, `instants` in the same order (8 bytes, little endian); `earliest`: the first of them.
    Raises: ValueError if these do not fit together.
    """

    def __init__(self, ids: str = "", instants: bytes = b"", earliest: int | None = None) -> None:
        if len(ids) * _INSTANT_BYTES != len(instants) * ID_CHARACTERS or (earliest is None) is not (not ids):
            raise ValueError(f"{len(instants)} bytes of instants for {len(ids)} characters of identities, from {earliest} on")
        self._ids = ids
        self._instants = bytearray(instants)
        self.earliest = earliest
        """The first instant; None without timers."""

    def set(self, leaf_id: str, instant: int | None) -> None:
        """Set a leaf node's timer, or remove it (None)."""
        at, instants = _at(self._ids, leaf_id), self._instants
        if at < 0:
            if instant is None:
                return
            self._ids += leaf_id
            instants += _INSTANT.pack(instant)
        else:
            before = _instant_at(instants, at)[0]
            if instant is None:
                del instants[at : at + _INSTANT_BYTES]
                self._ids = self._ids[:at] + self._ids[at + ID_CHARACTERS :]
            elif instant == before:
                return
            else:
                _put_instant(instants, at, instant)
            if before == self.earliest:
                self.earliest = min(self._all(), default=None)
                return
        if instant is not None and (self.earliest is None or instant < self.earliest):
            self.earliest = instant

    def due(self, now: int) -> list[str]:
        """Return the ids with a timer at `now` or before."""
        if self.earliest is None or self.earliest > now:
            return []
        return [leaf_id for leaf_id, instant in self.by_leaf().items() if instant <= now]

    def clear(self) -> None:
        """Remove all timers."""
        self._ids, self._instants, self.earliest = "", bytearray(), None

    def restrict(self, leaf_ids: Collection[str]) -> None:
        """Remove the timers of all other leaf nodes."""
        for leaf_id in self.by_leaf():
            if leaf_id not in leaf_ids:
                self.set(leaf_id, None)

    def by_leaf(self) -> dict[str, int]:
        """Return a mapping."""
        ids = self._ids
        return {ids[i * ID_CHARACTERS : (i + 1) * ID_CHARACTERS]: instant for i, instant in enumerate(self._all())}

    def __eq__(self, other: object) -> bool:
        """Return whether both contain the same timers."""
        return isinstance(other, Timers) and self.by_leaf() == other.by_leaf()

    __hash__ = None  # type: ignore[assignment]

    def packed(self) -> tuple[str, Any, int | None]:
        """Return the parts that the constructor takes."""
        return self._ids, self._instants, self.earliest

    def _all(self) -> tuple[int, ...]:
        return struct.unpack(f"<{len(self._instants) // _INSTANT_BYTES}q", self._instants)


def enc_hook(value: object) -> object:
    """Return the parts of an object for msgspec. Raises: TypeError for any other type."""
    if value.__class__ is PackedLeaves:
        return value.packed()
    if value.__class__ is Timers:
        return value.packed()
    raise TypeError(f"a state cannot contain a value of the type {type(value).__name__}")


def enc_hook_of_format_7(value: object) -> object:
    """Return the parts of an object as format 7 of a state has them. Raises: TypeError for any other type."""
    return value.packed_wide() if value.__class__ is PackedLeaves else enc_hook(value)


def dec_hook(kind: type, value: Any) -> Any:
    """Return the object for its parts. Up to format 4 of a state, both were mappings."""
    if value.__class__ is list:
        return PackedLeaves(*value) if kind is PackedLeaves else Timers(*value)
    return leaves_of(value) if kind is PackedLeaves else timers_of(value)


def leaves_of(kept: Mapping[str, Any]) -> PackedLeaves:
    """Return the packed form of a mapping."""
    found = PackedLeaves()
    for leaf_id, one in kept.items():
        found.put(leaf_id, one)
    ids, lengths, data = found.packed()
    return PackedLeaves(ids, bytes(lengths), bytes(data))


def timers_of(instants: Mapping[str, int]) -> Timers:
    """Return the packed form of a mapping."""
    packed = struct.pack(f"<{len(instants)}q", *instants.values())
    return Timers("".join(instants), packed, min(instants.values(), default=None))


def _written(data: bytearray, value: Any) -> int:
    """Append an encoded accumulator; return its length, 0 for none."""
    at = len(data)
    if value.__class__ is bytes:
        data += value
    elif value is not None:
        _encode_into(value, data, at)
    return len(data) - at


def _without_gaps(ids: str, lengths: bytearray, wide: bool) -> tuple[str, bytearray]:
    """Return ids and lengths without dropped accumulators."""
    sizes: Any = _unpacked(lengths) if wide else lengths
    left = [place for place, size in enumerate(sizes) if size]
    found = bytearray().join([_WIDE.pack(sizes[place]) if wide else _ONE[sizes[place]] for place in left])
    return "".join([ids[place * ID_CHARACTERS : (place + 1) * ID_CHARACTERS] for place in left]), found


def _widened(lengths: bytes | bytearray) -> bytearray:
    """Convert lengths of one byte each to four bytes each."""
    return bytearray(struct.pack(f"<{len(lengths)}I", *lengths))


def _unpacked(lengths: bytes | bytearray) -> tuple[int, ...]:
    """Return lengths of four bytes each as numbers."""
    return struct.unpack(f"<{len(lengths) // _WIDE_BYTES}I", lengths)


def _at(ids: str, leaf_id: str) -> int:
    """Return the offset of an id; -1 if it is missing."""
    at = ids.find(leaf_id)
    while at >= 0 and at % ID_CHARACTERS:  # the match spans the end of one id and the start of the next
        at = ids.find(leaf_id, at + 1)
    return at
