"""The rate limit, on a clock of the test's own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starling_ingest.limits import RateLimits


def test_a_burst_passes_then_the_rate() -> None:
    limits = RateLimits(per_second=10, burst=100)
    assert limits.take("a", 100, 0.0) == 0
    assert limits.take("a", 1, 0.0) == 1
    assert limits.take("a", 50, 0.0) == 5
    assert limits.take("a", 10, 1.0) == 0
    assert limits.take("a", 1, 1.0) == 1


def test_workspaces_do_not_share() -> None:
    limits = RateLimits(per_second=1, burst=10)
    assert limits.take("a", 10, 0.0) == 0
    assert limits.take("b", 10, 0.0) == 0
    assert limits.take("a", 1, 0.0) == 1


def test_what_is_refused_costs_nothing() -> None:
    limits = RateLimits(per_second=1, burst=10)
    assert limits.take("a", 8, 0.0) == 0
    assert limits.take("a", 3, 0.0) == 1
    assert limits.take("a", 2, 0.0) == 0


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(1, 50)), max_size=60))
def test_never_more_than_burst_and_rate_allow_and_waiting_helps(asked: list[tuple[float, int]]) -> None:
    limits = RateLimits(per_second=7, burst=50)
    now, passed = 0.0, 0
    for pause, count in asked:
        now += pause
        wait = limits.take("a", count, now)
        if wait:
            now += wait + 1e-9  # so that rounding does not decide
            assert limits.take("a", count, now) == 0
        passed += count
        assert passed <= 50 + 7 * now + 1e-6


def test_waiting_is_at_least_a_second() -> None:
    limits = RateLimits(per_second=1_000_000, burst=2500)
    assert limits.take("a", 2500, 0.0) == 0
    assert limits.take("a", 1, 0.0) == pytest.approx(1)
