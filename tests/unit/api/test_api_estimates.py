"""Intervals: exact where everybody was asked, and as wide as they say where not."""

import random
from collections.abc import Iterator

import pytest

from starling_api.preview.estimates import Drawn, Estimate

SLICES = 128


def test_who_asked_everybody_knows() -> None:
    assert Drawn(1, 1000, 1000).of(37) == Estimate(37, 37, 37)
    assert Drawn(1, 0, 0).of(0) == Estimate(0, 0, 0)
    assert Drawn(1, 1000, 1000).users == Estimate(1000, 1000, 1000)


def test_nobody_found_is_not_nobody_there() -> None:
    found = Drawn(0.01, 1000, 1000).of(0)
    assert (found.estimate, found.low) == (0, 0)
    assert 300 < found.high < 450  # 3 to 4 of a thousand would have been missed as easily as not


def test_an_empty_share_says_little() -> None:
    assert Drawn(0.1, 0, 0).of(0).high >= 30


def test_it_never_says_less_than_was_seen() -> None:
    found = Drawn(0.9, 10, 10).of(10)
    assert found.low >= 10
    assert found.high <= 14


def test_users_read_but_not_asked_help_to_know_how_many_there_are() -> None:
    narrow, wide = Drawn(0.1, 10_000, 500).of(500), Drawn(0.005, 500, 500).of(500)
    assert narrow.high - narrow.low < (wide.high - wide.low) / 2


def draws(size: int, hits: int, read: int, asked: int, lots: random.Random) -> Iterator[Estimate]:
    """As a survey does: users in slices by hash, some slices read, some of the users in them asked."""
    for _ in range(300):
        seen = [user for user in range(size) if lots.randrange(SLICES) < read]
        answers = lots.sample(seen, min(asked, len(seen)))
        yield Drawn(read / SLICES, len(seen), len(answers)).of(sum(user < hits for user in answers))


@pytest.mark.parametrize(("read", "asked"), [(16, 10_000), (16, 150), (64, 10_000), (127, 10_000)])
@pytest.mark.parametrize("hits", [0, 5, 60, 500, 970, 1000])
def test_the_truth_lies_in_95_of_100_intervals(hits: int, read: int, asked: int) -> None:
    lots = random.Random(f"{hits} {read} {asked}")
    covered = [found.low <= hits <= found.high for found in draws(1000, hits, read, asked, lots)]
    assert sum(covered) / len(covered) >= 0.92
