"""The lift of a campaign: its interval contains the true difference as often as promised, and the arms are assigned at random."""

import numpy as np
import pytest

from starling_campaigns.lift import Arm, lift, newcombe_interval
from starling_policy.shares import Variant, control_position, holdout_position, variant_of

CAMPAIGNS = 10_000
PEOPLE = 20_000


@pytest.mark.parametrize(
    ("people", "rate", "other_people", "other_rate"),
    [(9_000, 0.06, 1_000, 0.05), (900, 0.1, 100, 0.1), (500, 0.3, 500, 0.2), (50_000, 0.012, 5_000, 0.01), (450, 0.8, 150, 0.6)],
)
def test_of_10_000_campaigns_the_intervals_of_95_percent_contain_the_true_lift(
    people: int, rate: float, other_people: int, other_rate: float
) -> None:
    random = np.random.default_rng(7)
    converted, other = random.binomial(people, rate, CAMPAIGNS), random.binomial(other_people, other_rate, CAMPAIGNS)
    low, high = newcombe_interval(converted, people, other, other_people)
    true = rate - other_rate
    assert 0.93 <= np.mean((low <= true) & (true <= high)) <= 0.97
    # Both sides miss, so that the interval is not merely wide in one direction.
    assert min(np.mean(true < low), np.mean(high < true)) > 0.01


def test_the_interval_of_a_published_example() -> None:
    """Newcombe 1998, table II, method 10: 56/70 - 48/80, and 9/10 - 3/10."""
    assert newcombe_interval(56, 70, 48, 80) == pytest.approx((0.0524, 0.3339), abs=5e-5)
    assert newcombe_interval(9, 10, 3, 10) == pytest.approx((0.1705, 0.8090), abs=5e-5)


def test_a_lift_in_numbers() -> None:
    found = lift(Arm(1_000, 60, 1_200.0), Arm(500, 25, 500.0))
    assert found.difference == pytest.approx(0.01)
    assert found.relative == pytest.approx(0.2)
    assert found.value == pytest.approx(0.2)
    assert not found.inconclusive
    assert found.low is not None
    assert found.high is not None
    assert found.low < 0.01 < found.high


@pytest.mark.parametrize(
    ("written_to", "held_out", "inconclusive"),
    [
        (Arm(100, 5), Arm(100, 5), False),
        (Arm(99, 5), Arm(100, 5), True),
        (Arm(100, 5), Arm(99, 5), True),
        (Arm(100, 4), Arm(100, 5), True),
        (Arm(100, 5), Arm(100, 4), True),
    ],
)
def test_small_arms_are_inconclusive(written_to: Arm, held_out: Arm, inconclusive: bool) -> None:
    assert lift(written_to, held_out).inconclusive is inconclusive


def test_empty_arms_have_no_lift() -> None:
    assert lift(Arm(100, 5, 1.0), Arm()) == (None, None, None, None, None, True)
    assert lift(Arm(100, 5, 1.0), Arm(100)).relative is None


def test_the_assignment_is_uniform_and_independent_between_salts() -> None:
    users = [f"user-{number}" for number in range(PEOPLE)]
    variants = (Variant("a", 5_000), Variant("b", 5_000))
    arms = {
        "variant": [variant_of("win-back", variants, user) == "a" for user in users],
        "other variant": [variant_of("welcome", variants, user) == "a" for user in users],
        "holdout": [holdout_position("win-back", user) < 1_000 for user in users],
        "other holdout": [holdout_position("welcome", user) < 1_000 for user in users],
        "control": [control_position(user) < 1_000 for user in users],
    }
    found = np.array(list(arms.values()), dtype=float)
    shares = np.array([0.5, 0.5, 0.1, 0.1, 0.1])
    # The hash is constant, so the bounds of five standard errors never fail by chance.
    assert np.all(abs(found.mean(axis=1) - shares) < 5 * np.sqrt(shares * (1 - shares) / PEOPLE))
    correlations = np.corrcoef(found) - np.eye(len(found))
    assert abs(correlations).max() < 5 / np.sqrt(PEOPLE)
    positions = np.array([holdout_position("win-back", user) for user in users]) // 500
    expected = PEOPLE / 20
    assert ((np.bincount(positions, minlength=20) - expected) ** 2 / expected).sum() < 60  # chi-square, 19 degrees of freedom
