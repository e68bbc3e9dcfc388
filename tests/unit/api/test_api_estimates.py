"""Intervals: exact if every user was evaluated, else with the stated coverage."""

import random
from collections.abc import Iterator

import pytest

from starling_api.preview.estimates import Estimate, SampleSize

SLICES = 128


def test_a_complete_evaluation_is_exact() -> None:
    assert SampleSize(1, 1000, 1000).of(37) == Estimate(37, 37, 37)
    assert SampleSize(1, 0, 0).of(0) == Estimate(0, 0, 0)
    assert SampleSize(1, 1000, 1000).users == Estimate(1000, 1000, 1000)


def test_no_hit_has_an_upper_bound_above_zero() -> None:
    found = SampleSize(0.01, 1000, 1000).of(0)
    assert (found.estimate, found.low) == (0, 0)
    assert 300 < found.high < 450  # 3 to 4 of a thousand would have been missed as easily as not


def test_an_empty_share_has_a_wide_interval() -> None:
    assert SampleSize(0.1, 0, 0).of(0).high >= 30


def test_the_interval_is_never_below_the_users_found() -> None:
    found = SampleSize(0.9, 10, 10).of(10)
    assert found.low >= 10
    assert found.high <= 14


def test_users_that_were_only_read_narrow_the_number_of_users() -> None:
    narrow, wide = SampleSize(0.1, 10_000, 500).of(500), SampleSize(0.005, 500, 500).of(500)
    assert narrow.high - narrow.low < (wide.high - wide.low) / 2


def draws(size: int, hits: int, read: int, asked: int, lots: random.Random) -> Iterator[Estimate]:
    """As a survey does: users in slices by hash, some slices read, some of the users in them asked."""
    for _ in range(300):
        seen = [user for user in range(size) if lots.randrange(SLICES) < read]
        answers = lots.sample(seen, min(asked, len(seen)))
        yield SampleSize(read / SLICES, len(seen), len(answers)).of(sum(user < hits for user in answers))


@pytest.mark.parametrize(("read", "asked"), [(16, 10_000), (16, 150), (64, 10_000), (127, 10_000)])
@pytest.mark.parametrize("hits", [0, 5, 60, 500, 970, 1000])
def test_95_of_100_intervals_contain_the_true_value(hits: int, read: int, asked: int) -> None:
    lots = random.Random(f"{hits} {read} {asked}")
    covered = [found.low <= hits <= found.high for found in draws(1000, hits, read, asked, lots)]
    assert sum(covered) / len(covered) >= 0.92
