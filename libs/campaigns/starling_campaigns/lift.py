"""Pure core: the lift of a campaign: how much more often people convert who are written to than people who are held out.

Each person counts once, by the first message of the campaign that was requested or held out. Both arms would have been written to,
so the difference is an effect of the message. The interval is Newcombe's hybrid score interval (method 10 of Newcombe, 1998).
"""

from typing import Any, Final, NamedTuple

MIN_PEOPLE: Final = 100
MIN_CONVERSIONS: Final = 5
"""With fewer in an arm the lift is inconclusive."""
_Z: Final = 1.959963984540054
"""The 97.5 % quantile of the normal distribution: the interval contains the true difference in 95 % of all campaigns."""


class Arm(NamedTuple):
    """The people of one arm. `converted`: those whose first message converted; `value`: the sum of these conversions' values."""

    people: int = 0
    converted: int = 0
    value: float = 0.0

    def plus(self, other: "Arm") -> "Arm":
        """Return both arms together."""
        return Arm(self.people + other.people, self.converted + other.converted, self.value + other.value)

    @property
    def is_small(self) -> bool:
        """Return whether nothing can be concluded from the arm."""
        return self.people < MIN_PEOPLE or self.converted < MIN_CONVERSIONS


class Lift(NamedTuple):
    """The difference of two arms.

    `difference`: of the conversion rates, within `low` and `high`; `relative`: the difference divided by the rate of the held out;
    `value`: the difference of the mean values for each person. None if an arm is empty, of `relative` also if no one converted who
    was held out.
    """

    difference: float | None
    low: float | None
    high: float | None
    relative: float | None
    value: float | None
    inconclusive: bool


def lift(written_to: Arm, held_out: Arm) -> Lift:
    """Return the lift of the people who were written to over those who were held out."""
    if not written_to.people or not held_out.people:
        return Lift(None, None, None, None, None, inconclusive=True)
    rate, base = written_to.converted / written_to.people, held_out.converted / held_out.people
    low, high = newcombe_interval(written_to.converted, written_to.people, held_out.converted, held_out.people)
    return Lift(
        rate - base,
        low,
        high,
        (rate - base) / base if base else None,
        written_to.value / written_to.people - held_out.value / held_out.people,
        written_to.is_small or held_out.is_small,
    )


def newcombe_interval(converted: Any, people: Any, other_converted: Any, other_people: Any) -> tuple[Any, Any]:
    """Return the bounds of the 95 % interval of `converted / people - other_converted / other_people`.

    The arguments are numbers, or arrays of them of one shape. No `people` may be 0.
    """
    rate, other_rate = converted / people, other_converted / other_people
    low, high = _wilson_interval(rate, people)
    other_low, other_high = _wilson_interval(other_rate, other_people)
    difference = rate - other_rate
    return (
        difference - ((rate - low) ** 2 + (other_high - other_rate) ** 2) ** 0.5,
        difference + ((high - rate) ** 2 + (other_rate - other_low) ** 2) ** 0.5,
    )


def _wilson_interval(rate: Any, people: Any) -> tuple[Any, Any]:
    """Return the bounds of Wilson's score interval of a rate, without continuity correction."""
    square = _Z * _Z
    middle, spread = 2 * people * rate + square, _Z * (square + 4 * people * rate * (1 - rate)) ** 0.5
    return (middle - spread) / (2 * (people + square)), (middle + spread) / (2 * (people + square))
