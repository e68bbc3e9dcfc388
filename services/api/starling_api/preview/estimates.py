"""Pure core: from users drawn by lot to how many there are, with a 95 % interval.

Two things are unknown: how many users there are (a share of all slices was read, and slices are made by hashing), and what
share of them fulfils the condition (some of the users read were asked). Each has its interval: Wilson's, of a binomial count.
Their product has the interval that follows from both (MOVER: Donner and Zou 2012), which is exact when everybody was asked.
"""

from dataclasses import dataclass
from math import ceil, floor, sqrt
from typing import Final, NamedTuple

Z: Final = 1.959964
"""Quantile of the normal distribution: 95 % lie within so many standard deviations."""


class Estimate(NamedTuple):
    """Between `low` and `high` in 95 of 100 cases."""

    estimate: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Drawn:
    """`share`: of all slices that were read, above 0 and up to 1; `read`: users in them; `asked`: how many of these were asked."""

    share: float
    read: int
    asked: int

    @property
    def everybody(self) -> bool:
        """Nobody is left to be asked."""
        return self.share == 1 and self.asked == self.read

    @property
    def users(self) -> Estimate:
        """How many users there are."""
        low, high = _count_between(self.read, self.share)
        return Estimate(round(self.read / self.share), max(self.read, floor(low)), ceil(high))

    def of(self, hits: int) -> Estimate:
        """How many users are as `hits` of those asked are."""
        if self.everybody:
            return Estimate(hits, hits, hits)
        count, (fewest, most) = self.read / self.share, _count_between(self.read, self.share)
        part = hits / self.asked if self.asked else 0.0
        least, largest = _part_between(hits, self.asked, 1 - self.asked / count if count else 1.0)
        low = count * part - sqrt((part * (count - fewest)) ** 2 + (count * (part - least)) ** 2)
        high = count * part + sqrt((part * (most - count)) ** 2 + (max(count, most if not count else 0) * (largest - part)) ** 2)
        return Estimate(round(count * part), max(hits, floor(low)), max(hits, min(ceil(high), ceil(most))))


def _count_between(seen: int, share: float) -> tuple[float, float]:
    """How many there are when each of them is seen with probability `share`: the counts whose expectation is near enough."""
    rest = Z * Z * (1 - share)
    middle, spread = 2 * seen + rest, sqrt(rest * (rest + 4 * seen))
    return (middle - spread) / (2 * share), (middle + spread) / (2 * share)


def _part_between(hits: int, asked: int, left: float) -> tuple[float, float]:
    """Wilson's interval of a proportion. `left`: the share of all that was not asked; with nobody left there is no doubt."""
    if not asked:
        return 0.0, 1.0
    part, z2 = hits / asked, Z * Z * max(0.0, left)
    middle = (part + z2 / (2 * asked)) / (1 + z2 / asked)
    spread = sqrt(z2 * (part * (1 - part) / asked + z2 / (4 * asked * asked))) / (1 + z2 / asked)
    return max(0.0, middle - spread), min(1.0, middle + spread)
