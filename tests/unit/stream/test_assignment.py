"""The assignment of partitions and standby copies: complete, even, and without unnecessary moves."""

from collections import Counter
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from starling_stream.kafka.assignment import (
    NOT_OPENED,
    Claim,
    MemberAssignment,
    assign_partitions,
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


def _owners(assignment: Mapping[str, MemberAssignment]) -> dict[int, str]:
    return {number: member for member, share in assignment.items() for number in share.active}


def _next_claims(assignment: Mapping[str, MemberAssignment], generation: int, replicas: int = 0) -> dict[str, Claim]:
    """Return the claims of members that ran and followed their assignment."""
    return {
        member: Claim(generation, tuple(share.active), dict.fromkeys([*share.active, *share.standby], 7), replicas)
        for member, share in assignment.items()
    }


@given(CLAIMS, st.integers(0, 16))
def test_each_partition_is_assigned_once_and_evenly(claims: dict[str, Claim], count: int) -> None:
    assignment = assign_partitions(range(count), claims)
    assert assignment.keys() == claims.keys()
    assert sorted(number for share in assignment.values() for number in share.active) == list(range(count))
    sizes = [len(share.active) for share in assignment.values()]
    assert max(sizes) - min(sizes) <= 1


@given(CLAIMS, st.integers(0, 16))
def test_copies_have_the_configured_number_and_are_never_on_the_partitions_own_member(claims: dict[str, Claim], count: int) -> None:
    assignment = assign_partitions(range(count), claims)
    owners = _owners(assignment)
    replicas = min(max(claim.replicas for claim in claims.values()), len(claims) - 1)
    copies = Counter(number for share in assignment.values() for number in share.standby)
    assert copies == Counter({number: replicas for number in range(count) if replicas})
    for member, share in assignment.items():
        assert len(set(share.standby)) == len(share.standby)
        assert all(owners[number] != member for number in share.standby)


@given(st.integers(1, 16), st.integers(1, 6), st.integers(0, 2), st.data())
def test_no_more_partitions_move_than_the_change_of_members_requires(
    count: int, members: int, replicas: int, data: st.DataObject
) -> None:
    first = assign_partitions(range(count), {f"w{number}": Claim(replicas=replicas) for number in range(members)})
    stay = data.draw(st.sets(st.sampled_from(sorted(first)), min_size=1))
    come = data.draw(st.integers(0, 3))
    claims = {member: claim for member, claim in _next_claims(first, 1, replicas).items() if member in stay}
    claims |= {f"n{number}": Claim() for number in range(come)}
    second = assign_partitions(range(count), claims)
    before, after = _owners(first), _owners(second)
    moved = [number for number, owner in before.items() if owner in stay and after[number] != owner]
    least, more = divmod(count, len(claims))
    held = sorted((len(first[member].active) for member in stay), reverse=True)
    assert len(moved) == sum(max(0, size - least - (rank < more)) for rank, size in enumerate(held))


@given(CLAIMS, st.integers(0, 16))
def test_the_order_of_the_members_makes_no_difference(claims: dict[str, Claim], count: int) -> None:
    assert assign_partitions(range(count), claims) == assign_partitions(range(count), dict(reversed(claims.items())))


def test_a_dead_members_partitions_go_to_the_members_with_copies_of_them() -> None:
    first = assign_partitions(range(8), {f"w{number}": Claim(replicas=1) for number in range(4)})
    copies = {number: member for member, share in first.items() for number in share.standby}
    dead = first["w0"].active
    claims = {member: claim for member, claim in _next_claims(first, 1, 1).items() if member != "w0"}
    after = _owners(assign_partitions(range(8), claims))
    # Three members have eight partitions, so two of them get one more. Where both copies are on one with room for one, the other
    # partition goes elsewhere.
    assert sum(after[number] == copies[number] for number in dead) >= len({copies[number] for number in dead})


def test_the_copy_with_the_greatest_position_is_preferred_and_an_unopened_one_to_none() -> None:
    claims = {"a": Claim(stores={0: 5, 1: 9}), "b": Claim(stores={0: 6, 1: 8})}
    assert _owners(assign_partitions(range(2), claims)) == {0: "b", 1: "a"}
    claims = {"a": Claim(), "b": Claim(stores={0: NOT_OPENED})}
    assert _owners(assign_partitions(range(1), claims)) == {0: "b"}


def test_a_new_member_gets_the_partitions_that_it_has_copies_of() -> None:
    claims = {"a": Claim(1, (0, 1, 2, 3)), "b": Claim(stores={1: 5, 2: NOT_OPENED})}
    assignment = assign_partitions(range(4), claims)
    assert assignment["b"].active == [1, 2]


def test_of_two_members_that_ran_a_partition_the_later_generation_counts() -> None:
    claims = {"a": Claim(4, (0,)), "b": Claim(5, (0,)), "c": Claim(-1, ())}
    assert _owners(assign_partitions(range(1), claims)) == {0: "b"}


def test_copies_stay_on_their_members() -> None:
    first = assign_partitions(range(6), {f"w{number}": Claim(replicas=1) for number in range(3)})
    assert assign_partitions(range(6), _next_claims(first, 1, 1)) == first


@given(CLAIM)
def test_a_claim_is_decoded_as_it_was_encoded(claim: Claim) -> None:
    assert decode_claim(encode_claim(claim)) == claim


@given(st.sets(NUMBERS))
def test_standbys_are_decoded_as_they_were_encoded(numbers: set[int]) -> None:
    assert decode_standbys(encode_standbys(sorted(numbers))) == numbers


def test_bytes_of_another_version_are_an_empty_claim() -> None:
    assert decode_claim(b"") == decode_claim(b"\x07\xff") == Claim()
    assert decode_standbys(b"") == decode_standbys(b"\x07\xff") == frozenset()


def test_a_claim_has_a_few_bytes_a_partition() -> None:
    held = tuple(range(1_000))
    assert len(encode_claim(Claim(1_000, held, dict.fromkeys(held, 10**12), 1))) < 20_000
