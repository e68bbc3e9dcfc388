"""Pure core: users -> buckets of state, and buckets -> tasks of Spark, each task with the same number of buckets.

Spark assigns a grouping key to a task by a hash. The hashes of a few partition numbers collide: of eight tasks for the partitions
0 to 7, three have nothing to do and one has three partitions. The grouping keys are therefore integers that are searched for.
"""

from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from itertools import count
from typing import Final

_BUCKETS_A_TASK: Final = 4
"""Buckets of several partitions in each task level out partitions of different sizes."""
_SEED: Final = 42
"""The seed of Spark's `hash` and of its hash partitioning."""
_MASK: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Buckets:
    """The buckets of a query. Bucket `partition * slots + slot` is in the task `bucket % tasks`."""

    slots: int = 1
    tasks: int = 1

    @classmethod
    def of(cls, partitions: int, tasks: int) -> "Buckets":
        """Return the fewest slots for which each task has the same number of buckets, and at least four."""
        enough = next(n for n in count(1) if partitions * n >= _BUCKETS_A_TASK * tasks and partitions * n % tasks == 0)
        return cls(enough, tasks)

    def slot(self, user: str) -> int:
        """Return the slot of `workspace/user`. The hash is not that of Kafka's partitioners: a partition has users of all slots."""
        if self.slots == 1:
            return 0
        return int.from_bytes(blake2b(user.encode(), digest_size=8).digest()) % self.slots

    def key(self, partition: int, slot: int) -> int:
        """Return the grouping key of a bucket."""
        return grouping_key(partition * self.slots + slot, self.tasks)


SINGLE: Final = Buckets()
"""A bucket a partition, in one task."""


@cache
def grouping_key(bucket: int, tasks: int) -> int:
    """Return the integer of a bucket: one that Spark assigns to the task `bucket % tasks`, another one for each bucket."""
    after = grouping_key(bucket - tasks, tasks) + 1 if bucket >= tasks else 0
    return next(key for key in count(after) if task_of(key, tasks) == bucket % tasks)


def task_of(key: int, tasks: int) -> int:
    """Return the task of a grouping key: `pmod(hash(key), tasks)` in Spark. `hash` is Murmur3 of one 32-bit integer."""
    mixed = key * 0xCC9E2D51 & _MASK
    mixed = _rotated(mixed, 15) * 0x1B873593 & _MASK
    hashed = (_rotated(_SEED ^ mixed, 13) * 5 + 0xE6546B64) & _MASK
    hashed ^= 4  # bytes
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6B & _MASK
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35 & _MASK
    hashed ^= hashed >> 16
    return (hashed - (1 << 32) if hashed >> 31 else hashed) % tasks


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK
