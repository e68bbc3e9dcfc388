"""Who gets which partitions, and whose copies: whole, even, and nothing moves that need not."""

from collections import Counter
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from starling_stream.kafka.assignment import (
    NOT_OPENED,
    Claim,
    Share,
    deal,
    decode_claim,
    decode_standbys,
    encode_claim,
    encode_standbys,
)

NUMBERS = st.integers(0, 15)
CLAIM = st.builds(
    Claim,
    st.integers(-1, 3),
    st.sets(NUMBERS).map(lambda held: tuple(sorted(held))),
    st.dictionaries(NUMBERS, st.integers(NOT_OPENED, 1_000)),
    st.integers(0, 3),
)
CLAIMS = st.dictionaries(st.sampled_from([f"w{number}" for number in range(6)]), CLAIM, min_size=1)


def _owners(shares: Mapping[str, Share]) -> dict[int, str]:
    return {number: member for member, share in shares.items() for number in share.active}


def _next_claims(shares: Mapping[str, Share], generation: int, replicas: int = 0) -> dict[str, Claim]:
    """What members say who followed and ran what they were given."""
    return {
        member: Claim(generation, tuple(share.active), dict.fromkeys([*share.active, *share.standby], 7), replicas)
        for member, share in shares.items()
    }


@given(CLAIMS, st.integers(0, 16))
def test_each_partition_is_dealt_once_and_evenly(claims: dict[str, Claim], count: int) -> None:
    shares = deal(range(count), claims)
    assert shares.keys() == claims.keys()
    assert sorted(number for share in shares.values() for number in share.active) == list(range(count))
    sizes = [len(share.active) for share in shares.values()]
    assert max(sizes) - min(sizes) <= 1


@given(CLAIMS, st.integers(0, 16))
def test_copies_are_as_many_as_asked_for_and_never_beside_the_partition_itself(claims: dict[str, Claim], count: int) -> None:
    shares = deal(range(count), claims)
    owners = _owners(shares)
    replicas = min(max(claim.replicas for claim in claims.values()), len(claims) - 1)
    copies = Counter(number for share in shares.values() for number in share.standby)
    assert copies == Counter({number: replicas for number in range(count) if replicas})
    for member, share in shares.items():
        assert len(set(share.standby)) == len(share.standby)
        assert all(owners[number] != member for number in share.standby)


@given(st.integers(1, 16), st.integers(1, 6), st.integers(0, 2), st.data())
def test_no_more_partitions_move_than_the_change_of_members_takes(
    count: int, members: int, replicas: int, data: st.DataObject
) -> None:
    first = deal(range(count), {f"w{number}": Claim(replicas=replicas) for number in range(members)})
    stay = data.draw(st.sets(st.sampled_from(sorted(first)), min_size=1))
    come = data.draw(st.integers(0, 3))
    claims = {member: claim for member, claim in _next_claims(first, 1, replicas).items() if member in stay}
    claims |= {f"n{number}": Claim() for number in range(come)}
    second = deal(range(count), claims)
    before, after = _owners(first), _owners(second)
    moved = [number for number, owner in before.items() if owner in stay and after[number] != owner]
    least, more = divmod(count, len(claims))
    held = sorted((len(first[member].active) for member in stay), reverse=True)
    assert len(moved) == sum(max(0, size - least - (place < more)) for place, size in enumerate(held))


@given(CLAIMS, st.integers(0, 16))
def test_the_order_in_which_members_are_told_of_makes_no_difference(claims: dict[str, Claim], count: int) -> None:
    assert deal(range(count), claims) == deal(range(count), dict(reversed(claims.items())))


def test_a_dead_members_partitions_go_to_whoever_has_copies_of_them() -> None:
    first = deal(range(8), {f"w{number}": Claim(replicas=1) for number in range(4)})
    copies = {number: member for member, share in first.items() for number in share.standby}
    dead = first["w0"].active
    claims = {member: claim for member, claim in _next_claims(first, 1, 1).items() if member != "w0"}
    after = _owners(deal(range(8), claims))
    # Three members for eight partitions: two of them get one more, and where both copies lie with one that has room for one only,
    # the other one goes elsewhere.
    assert sum(after[number] == copies[number] for number in dead) >= len({copies[number] for number in dead})


def test_the_copy_that_is_furthest_is_chosen_and_one_that_was_not_opened_before_none() -> None:
    claims = {"a": Claim(stores={0: 5, 1: 9}), "b": Claim(stores={0: 6, 1: 8})}
    assert _owners(deal(range(2), claims)) == {0: "b", 1: "a"}
    claims = {"a": Claim(), "b": Claim(stores={0: NOT_OPENED})}
    assert _owners(deal(range(1), claims)) == {0: "b"}


def test_what_a_newcomer_has_a_copy_of_is_what_it_is_given() -> None:
    claims = {"a": Claim(1, (0, 1, 2, 3)), "b": Claim(stores={1: 5, 2: NOT_OPENED})}
    shares = deal(range(4), claims)
    assert shares["b"].active == [1, 2]


def test_of_two_that_held_a_partition_the_later_is_right() -> None:
    claims = {"a": Claim(4, (0,)), "b": Claim(5, (0,)), "c": Claim(-1, ())}
    assert _owners(deal(range(1), claims)) == {0: "b"}


def test_copies_stay_where_they_are() -> None:
    first = deal(range(6), {f"w{number}": Claim(replicas=1) for number in range(3)})
    assert deal(range(6), _next_claims(first, 1, 1)) == first


@given(CLAIM)
def test_claims_come_back_as_they_were_said(claim: Claim) -> None:
    assert decode_claim(encode_claim(claim)) == claim


@given(st.sets(NUMBERS))
def test_standbys_come_back_as_they_were_dealt(numbers: set[int]) -> None:
    assert decode_standbys(encode_standbys(sorted(numbers))) == numbers


def test_what_another_version_says_is_a_claim_to_nothing() -> None:
    assert decode_claim(b"") == decode_claim(b"\x07\xff") == Claim()
    assert decode_standbys(b"") == decode_standbys(b"\x07\xff") == frozenset()


def test_a_claim_takes_some_bytes_a_partition() -> None:
    held = tuple(range(1_000))
    assert len(encode_claim(Claim(1_000, held, dict.fromkeys(held, 10**12), 1))) < 20_000
