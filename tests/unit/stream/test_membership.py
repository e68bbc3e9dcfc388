"""Tasks continue only over a rebalance in which no other worker can have had their partitions."""

import pytest

from starling_stream.kafka.membership import Membership, continues

BEFORE = Membership("g", 7, "m-1", "w0")


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (BEFORE._replace(generation=8), True),
        (BEFORE, True),  # the request was repeated, and the group did not change
        (BEFORE._replace(generation=9), False),  # generation 8 may have assigned the partitions to another worker
        (BEFORE._replace(generation=6), False),  # the group was deleted meanwhile
        (BEFORE._replace(generation=8, member_id="m-2"), False),  # the group removed the worker
    ],
)
def test_tasks_continue_as_the_same_member_of_the_next_generation(after: Membership, expected: bool) -> None:
    assert continues(BEFORE, after) is expected


def test_tasks_without_a_membership_do_not_continue() -> None:
    assert not continues(None, BEFORE)
    assert not continues(BEFORE._replace(generation=-1), BEFORE._replace(generation=0))
