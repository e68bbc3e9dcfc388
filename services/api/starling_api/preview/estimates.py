"""Pure core: estimates with 95 % confidence intervals from a random sample of users.

Two quantities are unknown: the number of users, because only a share of the slices is read, and the proportion of users that
satisfy the condition, because only some of them are evaluated. Each has an interval of a binomial count (Wilson). The interval of
their product follows from both (MOVER: Donner and Zou 2012). It is exact when every user is evaluated.
"""

from dataclasses import dataclass
from math import ceil, floor, sqrt
from typing import Final, NamedTuple

Z: Final = 1.959964
"""Quantile of the normal distribution: 95 % of the values are within this number of standard deviations."""


class Estimate(NamedTuple):
    """A number of users with its 95 % confidence interval."""

    estimate: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class SampleSize:
    """`share`: share of the slices that were read, 0 < share <= 1; `read`: users in them; `evaluated`: evaluated users."""

    share: float
    read: int
    evaluated: int

    @property
    def is_complete(self) -> bool:
        """Return whether every user was evaluated."""
        return self.share == 1 and self.evaluated == self.read

    @property
    def users(self) -> Estimate:
        """Return the estimated number of all users."""
        low, high = _count_between(self.read, self.share)
        return Estimate(round(self.read / self.share), max(self.read, floor(low)), ceil(high))

    def of(self, hits: int) -> Estimate:
        """Return the estimated number of matching users, of which `hits` were found among the evaluated ones."""
        if self.is_complete:
            return Estimate(hits, hits, hits)
        count, (fewest, most) = self.read / self.share, _count_between(self.read, self.share)
        part = hits / self.evaluated if self.evaluated else 0.0
        least, largest = _part_between(hits, self.evaluated, 1 - self.evaluated / count if count else 1.0)
        low = count * part - sqrt((part * (count - fewest)) ** 2 + (count * (part - least)) ** 2)
        high = count * part + sqrt((part * (most - count)) ** 2 + (max(count, most if not count else 0) * (largest - part)) ** 2)
        return Estimate(round(count * part), max(hits, floor(low)), max(hits, min(ceil(high), ceil(most))))


def _count_between(seen: int, share: float) -> tuple[float, float]:
    """Return the interval of a count of which `seen` were found, each with probability `share`."""
    rest = Z * Z * (1 - share)
    middle, half_width = 2 * seen + rest, sqrt(rest * (rest + 4 * seen))
    return (middle - half_width) / (2 * share), (middle + half_width) / (2 * share)


def _part_between(hits: int, evaluated: int, remaining: float) -> tuple[float, float]:
    """Return Wilson's interval of a proportion. `remaining`: share of all users that was not evaluated; 0 gives an exact result."""
    if not evaluated:
        return 0.0, 1.0
    part, z2 = hits / evaluated, Z * Z * max(0.0, remaining)
    middle = (part + z2 / (2 * evaluated)) / (1 + z2 / evaluated)
    half_width = sqrt(z2 * (part * (1 - part) / evaluated + z2 / (4 * evaluated * evaluated))) / (1 + z2 / evaluated)
    return max(0.0, middle - half_width), min(1.0, middle + half_width)
