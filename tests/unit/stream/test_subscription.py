"""The partitions that stay with a worker keep their positions over a rebalance, and their records are fetched meanwhile."""

import asyncio
from collections.abc import Iterable

import pytest
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from starling_stream.kafka.membership import Membership
from starling_stream.kafka.subscription import CooperativeSubscription

ONE, TWO, THREE, FOUR = (TopicPartition("a", number) for number in range(4))
FIRST = Membership("g", 7, "m-1", "w0")


class Member:
    """A worker after its first assignment, of the first two partitions, which it has read to offsets 5 and 6."""

    def __init__(self) -> None:
        self.membership = FIRST
        self.is_started = True
        self.subscription = CooperativeSubscription(lambda: self.membership, lambda: self.is_started)
        self.subscription.subscribe({"a"})
        self.subscription.assign_from_subscribed([ONE, TWO])
        self.states = dict(self.subscription.assignments)
        for offset, tp in ((5, ONE), (6, TWO)):
            self.subscription.seek(tp, offset)

    def joins(self, membership: Membership, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return the positions after a rebalance; None: not known yet."""
        self.subscription.begin_reassignment()
        return self.is_assigned(membership, tps)

    def is_assigned(self, membership: Membership, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        self.membership = membership
        self.subscription.assign_from_subscribed(list(tps))
        assignment = self.subscription.subscription.assignment
        states = {tp: assignment.state_value(tp) for tp in assignment.tps}
        assert states == dict(self.subscription.assignments)
        return {tp: state.position if state.has_valid_position else None for tp, state in states.items()}


def test_a_partition_that_stays_keeps_its_position_and_its_identity() -> None:
    async def rebalanced() -> None:
        member = Member()
        assert member.joins(FIRST._replace(generation=8), [TWO, THREE]) == {TWO: 6, THREE: None}
        assert member.subscription.has_continued
        assert member.subscription.assignments[TWO] is member.states[TWO]
        # A later request for a committed offset reaches the assignment in force.
        member.states[TWO].fetch_committed()
        assert set(member.subscription.subscription.assignment.requesting_committed()) == {TWO, THREE}

    asyncio.run(rebalanced())


@pytest.mark.parametrize(("committed", "position"), [(9, 9), (-1, None)])
def test_the_committed_offsets_of_all_new_partitions_are_requested_at_once(committed: int, position: int | None) -> None:
    async def rebalanced() -> None:
        member = Member()
        member.joins(FIRST._replace(generation=8), [TWO, THREE, FOUR])
        assignment = member.subscription.subscription.assignment
        assert set(assignment.requesting_committed()) == {THREE, FOUR}
        for tp in (THREE, FOUR):
            assignment.state_value(tp).update_committed(OffsetAndMetadata(committed, ""))
        await asyncio.sleep(0)
        states = [assignment.state_value(tp) for tp in (THREE, FOUR)]
        assert [state.position if state.has_valid_position else None for state in states] == [position] * 2
        assert [state.awaiting_reset for state in states] == [position is None] * 2

    asyncio.run(rebalanced())


def test_a_partition_that_returns_after_a_generation_elsewhere_begins_again() -> None:
    async def rebalanced() -> None:
        member = Member()
        member.joins(FIRST._replace(generation=8), [TWO])
        assert member.joins(FIRST._replace(generation=9), [ONE, TWO]) == {ONE: None, TWO: 6}
        assert member.subscription.assignments[ONE] is not member.states[ONE]

    asyncio.run(rebalanced())


def test_records_are_fetched_while_the_members_join() -> None:
    async def rebalanced() -> None:
        member = Member()
        member.subscription.begin_reassignment()
        assert not member.subscription.reassignment_in_progress
        assert (member.subscription.is_lost, member.subscription.is_of_framework) == (False, False)

    asyncio.run(rebalanced())


@pytest.mark.parametrize("removed_when", ["before the join", "in the join"])
def test_no_partition_of_a_removed_worker_continues(removed_when: str) -> None:
    async def rebalanced() -> None:
        member, again = Member(), FIRST._replace(generation=8, member_id="m-2")
        if removed_when == "before the join":
            member.membership = FIRST._replace(generation=-1, member_id="")
            member.subscription.begin_reassignment()
            assert (member.subscription.is_lost, member.subscription.reassignment_in_progress) == (True, True)
        else:
            member.subscription.begin_reassignment()
        assert member.is_assigned(again, [ONE, TWO]) == {ONE: None, TWO: None}
        assert not member.subscription.has_continued

    asyncio.run(rebalanced())


def test_no_partition_continues_over_a_generation_that_the_worker_missed() -> None:
    async def rebalanced() -> None:
        member = Member()
        assert member.joins(FIRST._replace(generation=9), [ONE, TWO]) == {ONE: None, TWO: None}
        assert not member.subscription.has_continued

    asyncio.run(rebalanced())


def test_a_rebalance_before_faust_has_started_its_streams_stops_everything() -> None:
    async def rebalanced() -> None:
        member = Member()
        member.is_started = False
        member.subscription.begin_reassignment()
        member.is_started = True  # too late for this rebalance
        assert member.subscription.reassignment_in_progress
        assert member.is_assigned(FIRST._replace(generation=8), [ONE, TWO]) == {ONE: None, TWO: None}
        assert member.subscription.is_of_framework

    asyncio.run(rebalanced())
