"""Pure core: the share of each partition in the events of users with Zipf's frequencies."""

import math
from collections.abc import Sequence
from typing import Final

from starling_common.partitioning import partition_of

HASHED: Final = 20_000
"""The most active users, whose keys are hashed one by one. Each of the others is too small to be seen in a partition."""


def partition_shares(users: int, exponent: float, partitions: int) -> Sequence[float]:
    """Return the share of each partition; they add up to 1. The user of rank r has a frequency in proportion to r ** -exponent.

    Users beyond the first `HASHED` are spread evenly, as the hash does with many small ones.
    """
    shares = [0.0] * partitions
    head = min(users, HASHED)
    for rank in range(1, head + 1):
        shares[partition_of(b"default/user-%d" % rank, partitions)] += rank**-exponent
    rest = _sum_of_powers(users, exponent) - _sum_of_powers(head, exponent)
    total = sum(shares) + rest
    return [(share + rest / partitions) / total for share in shares]


def top_share(users: int, exponent: float) -> float:
    """Return the share of the most active user."""
    return 1 / _sum_of_powers(users, exponent)


def _sum_of_powers(count: int, exponent: float) -> float:
    """Return the sum of r ** -exponent for r = 1 … count; above `HASHED` terms by Euler and Maclaurin's formula."""
    head = min(count, HASHED)
    found = math.fsum(rank**-exponent for rank in range(1, head + 1))
    if count > head:
        ends = (count**-exponent - head**-exponent) / 2
        inner = math.log(count / head) if exponent == 1 else (count ** (1 - exponent) - head ** (1 - exponent)) / (1 - exponent)
        found += inner + ends
    return found
