"""Pure core: the assignment of partitions and standby copies to the members of a group.

A joining member claims the partitions that it ran and the stores on its disk. The leader of the group assigns as evenly as
possible: a partition goes to the member that ran it, else to the member whose store of it has the greatest position.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

NOT_OPENED: Final = -1
"""The position of a store on disk that was not opened."""

_NO_STORE: Final = -2
_FORMAT: Final = b"\x01"


class Claim(msgspec.Struct, array_like=True, frozen=True):
    """The report of a member that joins the group.

    `active`: partitions that ran there in that `generation`; of two members with one partition, the later generation counts.
    `stores`: partition -> the changelog offset of its store, or `NOT_OPENED`. `replicas`: how many other members are to keep a
    standby copy of each partition.
    """

    generation: int = -1
    active: tuple[int, ...] = ()
    stores: dict[int, int] = {}
    replicas: int = 0


class MemberAssignment(NamedTuple):
    """The partitions of a member, ascending. `standby`: partitions of others of which it keeps a standby copy."""

    active: Sequence[int]
    standby: Sequence[int]


def encode_claim(claim: Claim) -> bytes:
    """Return the bytes of a claim: a format version, then MessagePack; a few bytes a partition, whatever the number of members."""
    return _FORMAT + msgspec.msgpack.encode(claim)


def decode_claim(data: bytes) -> Claim:
    """Return the claim; an empty one for no bytes or an unknown format."""
    return msgspec.msgpack.decode(data[1:], type=Claim) if data[:1] == _FORMAT else Claim()


def encode_standbys(partitions: Sequence[int]) -> bytes:
    """Return the bytes of partition numbers, as `encode_claim`."""
    return _FORMAT + msgspec.msgpack.encode(partitions)


def decode_standbys(data: bytes) -> frozenset[int]:
    """Return the partition numbers; none for an unknown format."""
    return frozenset(msgspec.msgpack.decode(data[1:], type=list[int])) if data[:1] == _FORMAT else frozenset()


def assign_partitions(partitions: Collection[int], claims: Mapping[str, Claim]) -> dict[str, MemberAssignment]:
    """Return member -> assignment. The result depends on the claims alone.

    No member has more than one partition more than another, and no more partitions move than this requires.
    """
    numbers = sorted(partitions)
    active = _assign_active(numbers, claims)
    standby = _assign_standbys(numbers, active, claims)
    return {member: MemberAssignment(sorted(active[member]), sorted(standby[member])) for member in claims}


def _assign_active(numbers: Sequence[int], claims: Mapping[str, Claim]) -> dict[str, list[int]]:
    owners = _owners(claims)
    kept = {member: [number for number in numbers if owners.get(number) == member] for member in sorted(claims)}
    least, extra = divmod(len(numbers), len(kept))
    free = [number for number in numbers if number not in owners]
    takers = [member for member, has in kept.items() if len(has) <= least]
    for has in sorted(kept.values(), key=len, reverse=True):
        keeps = min(len(has), least + (extra > 0))
        extra -= keeps > least
        # A partition that a member with room has a store of is given away first.
        has.sort(key=lambda number: _furthest(claims, takers, number))
        free += has[keeps:]
        del has[keeps:]
    # Partitions with the fewest stores are placed first, and those without any store last.
    for number in sorted(free, key=lambda number: (_known(claims, takers, number) or len(claims) + 1, number)):
        room = [member for member, has in kept.items() if len(has) < least + (extra > 0)]
        best = min(room, key=lambda member: (-_store(claims, member, number), len(kept[member]), member))
        extra -= len(kept[best]) == least
        kept[best].append(number)
    return kept


def _owners(claims: Mapping[str, Claim]) -> dict[int, str]:
    owners: dict[int, str] = {}
    for member in sorted(claims, key=lambda member: (claims[member].generation, member)):
        owners |= dict.fromkeys(claims[member].active, member)
    return owners


def _assign_standbys(
    numbers: Sequence[int], active: Mapping[str, Sequence[int]], claims: Mapping[str, Claim]
) -> dict[str, list[int]]:
    """Assign copies to members that have a store, then to those with the fewest copies."""
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
    """Return how many of these members have a store of the partition."""
    return sum(number in claims[member].stores for member in members)


def _furthest(claims: Mapping[str, Claim], members: Sequence[str], number: int) -> int:
    return max((_store(claims, member, number) for member in members), default=_NO_STORE)
