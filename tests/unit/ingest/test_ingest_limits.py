"""The rate limits and the shares of the queue, on a clock of the test's own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starling_common.http.rate_limits import Quota, Rate
from starling_ingest.limits import OverRate, RateLimits, Rates
from starling_ingest.publishing.shares import Shares

NO_LIMIT = Rate.of(1e12)


def items(per_second: float, burst: float) -> RateLimits:
    return RateLimits(Rates(NO_LIMIT, NO_LIMIT), Rates(NO_LIMIT, NO_LIMIT, Rate(per_second, burst)))


def wait_for_items(limits: RateLimits, workspace: str, count: int, now_seconds: float) -> int:
    over = limits.take_items(workspace, count, now_seconds)
    return 0 if over is None else over.wait_seconds


def wait_for_request(limits: RateLimits, key: str, workspace: str, size_bytes: int, now_seconds: float) -> int:
    over = limits.take_request(key, workspace, size_bytes, now_seconds)
    return 0 if over is None else over.wait_seconds


def test_a_burst_passes_then_the_rate() -> None:
    limits = items(per_second=10, burst=100)
    assert wait_for_items(limits, "a", 100, 0.0) == 0
    assert wait_for_items(limits, "a", 1, 0.0) == 1
    assert wait_for_items(limits, "a", 50, 0.0) == 5
    assert wait_for_items(limits, "a", 10, 1.0) == 0
    assert wait_for_items(limits, "a", 1, 1.0) == 1


def test_workspaces_do_not_share() -> None:
    limits = items(per_second=1, burst=10)
    assert wait_for_items(limits, "a", 10, 0.0) == 0
    assert wait_for_items(limits, "b", 10, 0.0) == 0
    assert wait_for_items(limits, "a", 1, 0.0) == 1


def test_refused_items_take_nothing() -> None:
    limits = items(per_second=1, burst=10)
    assert wait_for_items(limits, "a", 8, 0.0) == 0
    assert wait_for_items(limits, "a", 3, 0.0) == 1
    assert wait_for_items(limits, "a", 2, 0.0) == 0


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(1, 50)), max_size=60))
def test_never_more_than_burst_and_rate_allow_and_waiting_helps(requested: list[tuple[float, int]]) -> None:
    limits = items(per_second=7, burst=50)
    now, passed = 0.0, 0
    for pause, count in requested:
        now += pause
        wait = wait_for_items(limits, "a", count, now)
        if wait:
            now += wait
            assert wait_for_items(limits, "a", count, now) == 0
        passed += count
        assert passed <= 50 + 7 * now + 1e-3


def test_waiting_is_at_least_a_second() -> None:
    limits = items(per_second=1_000_000, burst=2500)
    assert wait_for_items(limits, "a", 2500, 0.0) == 0
    assert wait_for_items(limits, "a", 1, 0.0) == pytest.approx(1)


@pytest.mark.parametrize(
    ("key", "workspace", "limit"),
    [
        (Rates(Rate(1, 3), NO_LIMIT), Rates(NO_LIMIT, NO_LIMIT), "key_requests"),
        (Rates(NO_LIMIT, Rate(100, 300)), Rates(NO_LIMIT, NO_LIMIT), "key_bytes"),
        (Rates(NO_LIMIT, NO_LIMIT), Rates(Rate(1, 3), NO_LIMIT), "workspace_requests"),
        (Rates(NO_LIMIT, NO_LIMIT), Rates(NO_LIMIT, Rate(100, 300)), "workspace_bytes"),
    ],
)
def test_each_bucket_limits_requests(key: Rates, workspace: Rates, limit: str) -> None:
    limits = RateLimits(key, workspace)
    assert [limits.take_request("k", "w", 100, 0.0) for _ in range(4)] == [None, None, None, OverRate(limit, 1)]
    assert wait_for_request(limits, "k", "w", 100, 1.0) == 0


def test_a_refused_key_takes_nothing_from_its_workspace() -> None:
    limits = RateLimits(Rates(Rate(1, 1), NO_LIMIT), Rates(Rate(1, 2), NO_LIMIT))
    assert wait_for_request(limits, "a", "w", 1, 0.0) == 0
    assert [wait_for_request(limits, "a", "w", 1, 0.0) for _ in range(5)] == [1] * 5
    assert wait_for_request(limits, "b", "w", 1, 0.0) == 0


def test_a_body_over_the_burst_passes_when_the_bucket_is_full() -> None:
    limits = RateLimits(Rates(NO_LIMIT, Rate(10, 20)), Rates(NO_LIMIT, NO_LIMIT))
    assert wait_for_request(limits, "k", "w", 100, 0.0) == 0
    assert wait_for_request(limits, "k", "w", 1, 0.0) == 9
    assert wait_for_request(limits, "k", "w", 1, 9.0) == 0


def test_the_reported_quota_is_that_of_the_bucket_with_fewer_requests_left() -> None:
    limits = RateLimits(Rates(Rate(1, 10), NO_LIMIT), Rates(Rate(2, 12), NO_LIMIT))
    assert limits.requests_left("a", "w", 0.0) == Quota(10, 10, 0)
    for _ in range(5):
        limits.take_request("a", "w", 1, 0.0)
        limits.take_request("b", "w", 1, 0.0)
    assert limits.requests_left("a", "w", 0.0) == Quota(12, 2, 5)
    assert limits.requests_left("a", "w", 1.25) == Quota(12, 4, 4)
    assert limits.requests_left("a", "w", 3.0) == Quota(10, 8, 2)
    assert limits.requests_left("a", "w", 60.0) == Quota(10, 10, 0)


def test_one_busy_workspace_leaves_half_of_the_queue_to_the_others() -> None:
    shares = Shares(1000, 10**9)
    taken = 0
    while shares.take("busy", 10, 1):
        taken += 10
    assert taken == 500
    assert shares.take("quiet", 250, 1)


@given(st.integers(1, 40), st.integers(1, 5), st.integers(1, 2000))
def test_any_number_of_busy_workspaces_leaves_room_for_another(busy: int, count: int, size: int) -> None:
    shares = Shares(100_000, 256 * 2**20)
    progress = True
    while progress:
        progress = any([shares.take(f"w{number}", count, size) is not None for number in range(busy)])  # noqa: C419 - all of them
    assert shares.take("quiet", count, size) is not None


def test_an_acknowledged_request_leaves_the_queue() -> None:
    shares = Shares(100, 1000)
    share = shares.take("w", 50, 10)
    assert share is not None
    assert shares.take("w", 1, 1) is None
    shares.give_back(share, 50, 10)
    assert shares.records == 0
    assert shares.take("w", 50, 10)


def test_bytes_are_shared_as_well() -> None:
    shares = Shares(100, 1000)
    assert shares.take("w", 1, 501)
    assert shares.take("w", 1, 1) is None
    assert shares.take("quiet", 1, 499)
