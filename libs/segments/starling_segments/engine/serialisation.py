"""Pure core, hot path: what a state keeps for each leaf, and their timers, as runs of bytes.

A user has tens to hundreds of leaves and an event touches a few of them. So they lie side by side: a leaf is found by
its identity in one long text, decoded only when it is asked for, and written back in its place; the others are copied
as the bytes they are.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import msgspec

from starling_segments.aggregates.accumulators import Accumulator

ID_CHARACTERS: Final = 8
"""Of a leaf's identity."""

_WIDE_BYTES: Final = 4
_NARROW: Final = 255
"""What a leaf may take for its length to fit into one byte; nearly all do."""
_INSTANT_BYTES: Final = 8  # as many as an identity has characters: both begin at the same place
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
    """Leaf identity -> what is kept for it.

    Shape: `ids` one after the other; `lengths` of what is kept for each, in one byte each, or all of them in four (little
    endian) when one has outgrown that; `kept` in that order. Raises: ValueError when there is not one length for each identity.
    """

    def __init__(self, ids: str = "", lengths: bytes = b"", kept: bytes = b"") -> None:
        count = len(ids) // ID_CHARACTERS
        if len(ids) != count * ID_CHARACTERS or len(lengths) not in {count, count * _WIDE_BYTES} or not ids.isascii():
            raise ValueError(f"{len(lengths)} bytes of lengths for {len(ids)} characters of identities")
        self._ids = ids
        self._lengths = lengths
        self._kept = kept
        self._sizes: bytes | tuple[int, ...] = lengths if len(lengths) == count else _unpacked(lengths)
        """The lengths, as numbers."""
        self._asked: dict[str, Any] = {}
        """What is kept for each leaf that was asked for; None: nothing; bytes: what has begun since, as it is written."""
        self._replaced: dict[int, tuple[str, int]] = {}
        """Which place it has -> which leaf, and where what was kept for it begins; of those that were there."""
        self._added: list[str] = []
        """Those that were not."""

    def get(self, leaf_id: str) -> Any:
        """What is kept for a leaf, None for nothing; to be changed in place."""
        asked = self._asked
        if leaf_id in asked:
            found = asked[leaf_id]
            if found.__class__ is bytes:
                found = asked[leaf_id] = _decode(found)
            return found
        at = _at(self._ids, leaf_id)
        if at < 0:
            asked[leaf_id] = None
            self._added.append(leaf_id)
            return None
        place, sizes = at // ID_CHARACTERS, self._sizes
        begin = sum(sizes[:place])
        kept = _decode(self._kept[begin : begin + sizes[place]])
        asked[leaf_id] = kept
        self._replaced[place] = (leaf_id, begin)
        return kept

    def put(self, leaf_id: str, kept: Any) -> None:
        """Keep something for a leaf, in place of what was kept."""
        asked = self._asked
        if leaf_id not in asked:
            at = _at(self._ids, leaf_id)
            if at < 0:
                self._added.append(leaf_id)
            else:
                place, sizes = at // ID_CHARACTERS, self._sizes
                self._replaced[place] = (leaf_id, sum(sizes[:place]))
        asked[leaf_id] = kept

    def put_first(self, leaf_id: str, fields: tuple[Any, ...]) -> None:
        """Keep something for a leaf of which `get` has found nothing: an accumulator as its number and its fields.

        It is written at once, and made only if it is asked for: most of what begins is not asked for before the next event.
        """
        self._asked[leaf_id] = _encode(fields)

    def drop(self, leaf_id: str) -> None:
        """Keep nothing for a leaf any more."""
        self.put(leaf_id, None)

    def restrict(self, leaf_ids: Collection[str]) -> None:
        """Keep nothing for any other leaf."""
        for leaf_id in list(self):
            if leaf_id not in leaf_ids:
                self.drop(leaf_id)

    def take_over(self, other: PackedLeaves) -> None:
        """Keep what is kept there too, in place of what is kept for the same leaves here."""
        for leaf_id in other:
            self.put(leaf_id, other.get(leaf_id))

    def by_leaf(self) -> dict[str, Any]:
        """As a mapping."""
        return {leaf_id: self.get(leaf_id) for leaf_id in self}

    def packed(self) -> tuple[str, Any, Any]:
        """As it is made of."""
        if not self._asked:
            return self._ids, self._lengths, self._kept
        # Hot: once for each state that changes.
        asked, ids, lengths, gone = self._asked, self._ids, bytearray(self._lengths), False
        wide = len(lengths) * ID_CHARACTERS > len(ids)
        kept, done, data = self._kept, 0, bytearray()
        if self._replaced:
            sizes = self._sizes
            for place in sorted(self._replaced):
                leaf_id, begin = self._replaced[place]
                size = sizes[place]
                if begin > done:
                    data += kept[done:begin]
                now = _written(data, asked[leaf_id])
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
            now = _written(data, asked[leaf_id])
            if now:
                if now > _NARROW and not wide:
                    lengths, wide = _widened(lengths), True
                lengths += _WIDE.pack(now) if wide else _ONE[now]
                ids += leaf_id
        if gone:
            ids, lengths = _without_gaps(ids, lengths, wide)
        return ids, lengths, data

    def __iter__(self) -> Iterator[str]:
        """The leaves that something is kept for."""
        asked, stored = self._asked, self._ids
        ids = [stored[at : at + ID_CHARACTERS] for at in range(0, len(stored), ID_CHARACTERS)]
        there = [leaf_id for leaf_id in ids if leaf_id not in asked or asked[leaf_id] is not None]
        known = set(ids)
        return iter(there + [leaf_id for leaf_id, kept in asked.items() if kept is not None and leaf_id not in known])

    def __len__(self) -> int:
        """For how many leaves something is kept."""
        return len(list(iter(self)))

    def __bool__(self) -> bool:
        """Whether anything is kept."""
        return len(self) > 0 if self._asked else bool(self._ids)

    def __eq__(self, other: object) -> bool:
        """Whether the same is kept for the same leaves."""
        return isinstance(other, PackedLeaves) and self.by_leaf() == other.by_leaf()

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, leaf_id: str) -> bool:
        """Whether something is kept for a leaf."""
        asked = self._asked
        return asked[leaf_id] is not None if leaf_id in asked else _at(self._ids, leaf_id) >= 0


class Timers:
    """Leaf identity -> the next instant, in epoch ms, at which its truth can change by itself.

    Shape: `ids` one after the other, `instants` in that order (8 bytes, little endian); `earliest`: the first of them.
    Raises: ValueError when those do not fit together.
    """

    def __init__(self, ids: str = "", instants: bytes = b"", earliest: int | None = None) -> None:
        if len(ids) * _INSTANT_BYTES != len(instants) * ID_CHARACTERS or (earliest is None) is not (not ids):
            raise ValueError(f"{len(instants)} bytes of instants for {len(ids)} characters of identities, from {earliest} on")
        self._ids = ids
        self._instants = bytearray(instants)
        self.earliest = earliest
        """The first instant of all; None when no leaf waits for one."""

    def set(self, leaf_id: str, instant: int | None) -> None:
        """Set a leaf's timer, or take it away."""
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
        """The leaves whose instant is `now` or before."""
        if self.earliest is None or self.earliest > now:
            return []
        return [leaf_id for leaf_id, instant in self.by_leaf().items() if instant <= now]

    def clear(self) -> None:
        """No leaf waits for anything."""
        self._ids, self._instants, self.earliest = "", bytearray(), None

    def restrict(self, leaf_ids: Collection[str]) -> None:
        """Take away the timers of all other leaves."""
        for leaf_id in self.by_leaf():
            if leaf_id not in leaf_ids:
                self.set(leaf_id, None)

    def by_leaf(self) -> dict[str, int]:
        """As a mapping."""
        ids = self._ids
        return {ids[i * ID_CHARACTERS : (i + 1) * ID_CHARACTERS]: instant for i, instant in enumerate(self._all())}

    def __eq__(self, other: object) -> bool:
        """Whether the same leaves wait for the same instants."""
        return isinstance(other, Timers) and self.by_leaf() == other.by_leaf()

    __hash__ = None  # type: ignore[assignment]

    def packed(self) -> tuple[str, Any, int | None]:
        """As it is made of."""
        return self._ids, self._instants, self.earliest

    def _all(self) -> tuple[int, ...]:
        return struct.unpack(f"<{len(self._instants) // _INSTANT_BYTES}q", self._instants)


def enc_hook(value: object) -> object:
    """Of either, what it is made of, as msgspec wants it of whatever it does not know. Raises: TypeError for anything else."""
    if value.__class__ is PackedLeaves:
        return value.packed()
    if value.__class__ is Timers:
        return value.packed()
    raise TypeError(f"no part of a state is a {type(value).__name__}")


def dec_hook(kind: type, value: Any) -> Any:
    """The inverse. Up to format 4 of a state, leaves and timers were mappings."""
    if value.__class__ is list:
        return PackedLeaves(*value) if kind is PackedLeaves else Timers(*value)
    return leaves_of(value) if kind is PackedLeaves else timers_of(value)


def leaves_of(kept: Mapping[str, Any]) -> PackedLeaves:
    """From a mapping."""
    found = PackedLeaves()
    for leaf_id, one in kept.items():
        found.put(leaf_id, one)
    ids, lengths, data = found.packed()
    return PackedLeaves(ids, bytes(lengths), bytes(data))


def timers_of(instants: Mapping[str, int]) -> Timers:
    """From a mapping."""
    packed = struct.pack(f"<{len(instants)}q", *instants.values())
    return Timers("".join(instants), packed, min(instants.values(), default=None))


def _written(data: bytearray, value: Any) -> int:
    """Write what is kept for a leaf to the end; returns how many bytes it takes, 0 for nothing."""
    at = len(data)
    if value.__class__ is bytes:
        data += value
    elif value is not None:
        _encode_into(value, data, at)
    return len(data) - at


def _without_gaps(ids: str, lengths: bytearray, wide: bool) -> tuple[str, bytearray]:
    """Without the leaves that nothing is kept for any more."""
    sizes: Any = _unpacked(lengths) if wide else lengths
    left = [place for place, size in enumerate(sizes) if size]
    found = bytearray().join([_WIDE.pack(sizes[place]) if wide else _ONE[sizes[place]] for place in left])
    return "".join([ids[place * ID_CHARACTERS : (place + 1) * ID_CHARACTERS] for place in left]), found


def _widened(lengths: bytearray) -> bytearray:
    """One byte each -> four."""
    return bytearray(struct.pack(f"<{len(lengths)}I", *lengths))


def _unpacked(lengths: bytes | bytearray) -> tuple[int, ...]:
    """Of four bytes each."""
    return struct.unpack(f"<{len(lengths) // _WIDE_BYTES}I", lengths)


def _at(ids: str, leaf_id: str) -> int:
    """Where it begins; -1: it is not there."""
    at = ids.find(leaf_id)
    while at >= 0 and at % ID_CHARACTERS:  # the end of one identity and the beginning of the next
        at = ids.find(leaf_id, at + 1)
    return at
