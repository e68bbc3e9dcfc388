"""The token buckets and what a response reports of them, on a clock of the test's own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starling_common.http.rate_limits import Bucket, Buckets, Quota, Rate, quota_of


@given(st.floats(0.1, 1e4), st.floats(1, 1e5), st.lists(st.tuples(st.floats(0, 5), st.integers(1, 50)), max_size=60))
def test_what_is_left_is_what_passes_now(per_second: float, burst: float, requested: list[tuple[float, int]]) -> None:
    bucket, now = Bucket(Rate(per_second, burst)), 1e6
    for pause, count in requested:
        now += pause
        found = quota_of((bucket,), now)
        assert 0 <= found.remaining <= found.limit
        assert found.remaining == 0 or bucket.wait(found.remaining, now) == 0
        assert (bucket.wait(1, now) > 0) is (found.remaining == 0)
        assert quota_of((bucket,), now + found.reset_seconds).remaining == found.limit
        if bucket.wait(count, now) == 0:
            bucket.take(count, now)


def test_a_quantity_over_the_burst_leaves_nothing_below_zero() -> None:
    bucket = Bucket(Rate(10, 20))
    bucket.take(50, 0.0)
    assert quota_of((bucket,), 0.0) == Quota(20, 0, 5)


@pytest.mark.parametrize(
    ("retry_after", "fields"),
    [
        (None, [("ratelimit-limit", "20"), ("ratelimit-remaining", "7"), ("ratelimit-reset", "2")]),
        ("9", [("ratelimit-limit", "20"), ("ratelimit-remaining", "0"), ("ratelimit-reset", "9")]),
    ],
)
def test_nothing_remains_of_a_request_that_must_be_repeated(retry_after: str | None, fields: list[tuple[str, str]]) -> None:
    assert Quota(20, 7, 2).fields(retry_after) == fields


def test_a_sender_keeps_its_bucket() -> None:
    buckets = Buckets(Rate(1, 3), 10)
    buckets.of("a", 0.0).take(3, 0.0)
    assert buckets.of("a", 0.0).wait(1, 0.0) == 1
    assert buckets.of("b", 0.0).wait(1, 0.0) == 0


def test_the_number_of_buckets_is_bounded_and_full_ones_go_first() -> None:
    buckets = Buckets(Rate(1, 3), 8)
    for i in range(8):
        buckets.of(f"idle{i}" if i % 2 else f"busy{i}", 0.0).take(1 if i % 2 else 3, 0.0)
    buckets.of("new", 2.0).take(3, 2.0)
    assert len(buckets) == 5
    assert [buckets.of(f"busy{i}", 2.0).left(2.0) for i in (0, 2, 4, 6)] == [2, 2, 2, 2]


def test_a_flood_of_senders_stays_within_the_bound() -> None:
    buckets = Buckets(Rate(1, 3), 100)
    for i in range(5_000):
        buckets.of(f"sender{i}", 0.0).take(3, 0.0)
        assert len(buckets) <= 100
    assert buckets.of("sender4999", 0.0).wait(1, 0.0) == 1
