"""Pure core: which member of a group has which partitions, and who keeps a copy of the states of which.

A member tells, when it joins, what it held and which stores are on its disk. The member that leads the group deals from that:
as evenly as it goes, a partition to the member that held it, else to the one whose store of it is furthest.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

NOT_OPENED: Final = -1
"""The position of a store that is on disk, and was not looked into."""

_NO_STORE: Final = -2
_FORMAT: Final = b"\x01"


class Claim(msgspec.Struct, array_like=True, frozen=True):
    """What a member tells of itself.

    `held`: partitions that ran there in that `generation`; of two members that say so of one, the later is right. `stores`:
    partition -> the changelog offset that its store goes up to, or `NOT_OPENED`. `replicas`: how many others are to keep a copy
    of each partition.
    """

    generation: int = -1
    held: tuple[int, ...] = ()
    stores: dict[int, int] = {}
    replicas: int = 0


class Share(NamedTuple):
    """What a member gets, ascending. `standby`: partitions of others of which it is to keep a copy."""

    active: Sequence[int]
    standby: Sequence[int]


def encode_claim(claim: Claim) -> bytes:
    """A version of the format, then MessagePack: some bytes a partition, whatever the number of members."""
    return _FORMAT + msgspec.msgpack.encode(claim)


def decode_claim(data: bytes) -> Claim:
    """Of a member that says nothing, or in a format that is not known here: a claim to nothing."""
    return msgspec.msgpack.decode(data[1:], type=Claim) if data[:1] == _FORMAT else Claim()


def encode_standbys(partitions: Sequence[int]) -> bytes:
    """As `encode_claim`."""
    return _FORMAT + msgspec.msgpack.encode(partitions)


def decode_standbys(data: bytes) -> frozenset[int]:
    """None in a format that is not known here."""
    return frozenset(msgspec.msgpack.decode(data[1:], type=list[int])) if data[:1] == _FORMAT else frozenset()


def deal(partitions: Collection[int], claims: Mapping[str, Claim]) -> dict[str, Share]:
    """Each partition to one member, and copies to others; the same for the same claims.

    No member has more than one partition more than another, and no more of them move than that takes.
    """
    numbers = sorted(partitions)
    active = _dealt(numbers, claims)
    standby = _copies(numbers, active, claims)
    return {member: Share(sorted(active[member]), sorted(standby[member])) for member in claims}


def _dealt(numbers: Sequence[int], claims: Mapping[str, Claim]) -> dict[str, list[int]]:
    owners = _owners(claims)
    kept = {member: [number for number in numbers if owners.get(number) == member] for member in sorted(claims)}
    least, extra = divmod(len(numbers), len(kept))
    free = [number for number in numbers if number not in owners]
    takers = [member for member, has in kept.items() if len(has) <= least]
    for has in sorted(kept.values(), key=len, reverse=True):
        keeps = min(len(has), least + (extra > 0))
        extra -= keeps > least
        # What somebody who may get more has a store of is given away first.
        has.sort(key=lambda number: _furthest(claims, takers, number))
        free += has[keeps:]
        del has[keeps:]
    # Those first that only few have a store of; those last that it makes no difference for.
    for number in sorted(free, key=lambda number: (_known(claims, takers, number) or len(claims) + 1, number)):
        room = [member for member, has in kept.items() if len(has) < least + (extra > 0)]
        best = min(room, key=lambda member: (-_store(claims, member, number), len(kept[member]), member))
        extra -= len(kept[best]) == least
        kept[best].append(number)
    return kept


def _owners(claims: Mapping[str, Claim]) -> dict[int, str]:
    owners: dict[int, str] = {}
    for member in sorted(claims, key=lambda member: (claims[member].generation, member)):
        owners |= dict.fromkeys(claims[member].held, member)
    return owners


def _copies(numbers: Sequence[int], active: Mapping[str, Sequence[int]], claims: Mapping[str, Claim]) -> dict[str, list[int]]:
    """To those that have a store already, then to those with the fewest copies."""
    owner = {number: member for member, has in active.items() for number in has}
    replicas = min(max(claim.replicas for claim in claims.values()), len(claims) - 1)
    most = -(-len(numbers) * replicas // len(claims))
    copies: dict[str, list[int]] = {member: [] for member in sorted(claims)}
    others_of = {number: [member for member in copies if member != owner[number]] for number in numbers}
    for number in sorted(numbers, key=lambda number: (not _known(claims, others_of[number], number), number)):
        others = sorted(
            others_of[number],
            key=lambda member: (len(copies[member]) >= most, -_store(claims, member, number), len(copies[member]), member),
        )
        for member in others[:replicas]:
            copies[member].append(number)
    return copies


def _store(claims: Mapping[str, Claim], member: str, number: int) -> int:
    return claims[member].stores.get(number, _NO_STORE)


def _known(claims: Mapping[str, Claim], members: Sequence[str], number: int) -> int:
    """How many of these have a store of it."""
    return sum(number in claims[member].stores for member in members)


def _furthest(claims: Mapping[str, Claim], members: Sequence[str], number: int) -> int:
    return max((_store(claims, member, number) for member in members), default=_NO_STORE)
