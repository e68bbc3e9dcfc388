"""Users in buckets, and buckets in tasks: no task has much more than its share."""

from collections import Counter
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starling_spark.jobs.profiles.fold.chunks import Chunk, Refusal, UserHits, split
from starling_spark.jobs.profiles.query.buckets import Buckets, task_of

USERS_A_BUCKET = 2_500
MOST = 1.15
"""Load of the fullest bucket and of the fullest task, by the mean."""


@pytest.mark.parametrize("partitions", [1, 4, 6, 8, 64, 256])
@pytest.mark.parametrize("tasks", [1, 2, 3, 8, 64])
def test_each_task_has_the_same_number_of_buckets_and_each_bucket_a_key_of_its_own(partitions: int, tasks: int) -> None:
    buckets = Buckets.of(partitions, tasks)
    keys = [buckets.key(partition, slot) for partition in range(partitions) for slot in range(buckets.slots)]
    assert len(keys) == len(set(keys)) >= 4 * tasks
    assert [task_of(key, tasks) for key in keys] == [bucket % tasks for bucket in range(len(keys))]
    assert Buckets.of(partitions, tasks) == Buckets(buckets.slots, tasks)


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from([(4, 2), (1, 2), (8, 8), (6, 4), (3, 1)]),
    st.sampled_from(["{}", "user-{}", "{:08d}", "{}@example.com", "c0ffee{:024x}", "ゆ{}"]),
    st.integers(0, 10**9),
    st.integers(1, 1000),
)
def test_no_bucket_and_no_task_has_much_more_than_its_share(counts: tuple[int, int], name: str, first: int, step: int) -> None:
    """Users with generated names, in the partitions that librdkafka chooses."""
    partitions, tasks = counts
    buckets = Buckets.of(partitions, tasks)
    number = partitions * buckets.slots
    users = [f"w/{name.format(first + at * step)}" for at in range(number * USERS_A_BUCKET)]
    loads = Counter(buckets.key(crc32(user.encode()) % partitions, buckets.slot(user)) for user in users)
    by_task = Counter[int]()
    for key, load in loads.items():
        by_task[task_of(key, tasks)] += load
    assert max(loads.values()) <= MOST * len(users) / number
    assert max(by_task.values()) <= MOST * len(users) / tasks


def test_each_slot_gets_the_clock_and_each_user_and_dead_letter_is_in_one() -> None:
    refused = [Refusal(b"k", b"v", 1, "c")]
    users = {f"w/u{number}": UserHits("c", [(1, 2, [(0, True)])]) for number in range(50)}
    parts = split(Chunk(7, "c-clock", users, refused), 3, Buckets(3, 1).slot)
    assert [(part.now_ms, part.moved_by) for part in parts] == [(7, "c-clock")] * 3
    assert sorted(name for part in parts for name in part.users) == sorted(users)
    assert [part.refused for part in parts] == [refused, [], []]
    assert all(part.users for part in parts)
