"""The order of `received_at` and of the low watermark within a process."""

from itertools import pairwise

from starling_ingest.publishing.intake import ArrivalClock


def test_no_instant_is_taken_below_a_watermark_even_if_the_wall_clock_goes_back() -> None:
    walls = iter((100, 200, 150, 10, 300, 5))
    clock = ArrivalClock(lambda: next(walls))
    taken, low, later, lower, much_later, last = (
        clock.take(3), clock.next(), clock.take(1), clock.next(), clock.take(2), clock.next(),
    )  # fmt: skip
    assert (taken, low, later, lower, much_later, last) == (100, 200, 200, 201, 300, 302)
    assert all(first <= second for first, second in pairwise((taken + 2, low, later, lower, much_later + 1, last)))


def test_a_process_that_joins_takes_no_instant_below_the_watermarks_of_others() -> None:
    clock = ArrivalClock(lambda: 100)
    clock.advance(500)
    assert clock.take(2) == 500
    clock.advance(300)
    assert clock.next() == 502
