"""The rate of a target: no sum of processes exceeds it, and no message waits in memory for long."""

import asyncio
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starling_common.time.instants import wall_clock_ms
from starling_delivery.item import Item
from starling_delivery.policy import Step
from starling_delivery.sending.lanes import Admission, Lanes
from starling_delivery.sending.rates import Bucket, PartitionShare, Rates
from starling_delivery.targets import Batching
from tests.unit.delivery.making import Recorded, Scripted, definition, dispatcher, request, send_all, targets


def whole() -> float:
    return 1.0


def sent(bucket: Bucket, now: float) -> int:
    """Send all that the bucket allows at that time."""
    count = 0
    while bucket.wait(now) == 0:
        bucket.take(now)
        count += 1
    return count


def test_a_bucket_allows_its_rate_and_gathers_no_more_than_a_tenth_of_a_second() -> None:
    bucket = Bucket(100, whole, 0.0)
    assert [sent(bucket, now) for now in (0.0, 0.005, 0.01, 0.05, 0.1)] == [0, 0, 1, 4, 5]
    assert sent(bucket, 60.0) == 10
    assert bucket.wait(60.0) == pytest.approx(0.01)
    slow = Bucket(1, whole, 0.0)
    assert slow.wait(0.25) == pytest.approx(0.75)
    assert [sent(slow, now) for now in (1.0, 1.5, 2.0, 100.0)] == [1, 0, 1, 1]


@given(
    st.integers(1, 10_000),
    st.integers(1, 12),
    st.lists(st.tuples(st.floats(0.001, 3.0), st.randoms(use_true_random=False)), min_size=1, max_size=40),
)
def test_the_processes_together_never_exceed_the_rate_whatever_partitions_they_get(
    rate: int, partitions: int, steps: list[tuple[float, Any]]
) -> None:
    shares = [PartitionShare("changes", "retries") for _ in range(3)]
    buckets = [Bucket(rate, share, 0.0) for share in shares]
    now, count = 0.0, 0
    for seconds, rng in steps:
        for group, total in (("changes", partitions), ("retries", 6)):
            owners = [rng.randrange(3) for _ in range(total)]
            for number, share in enumerate(shares):
                share.assign(group, owners.count(number), total)
        assert sum(share() for share in shares) == pytest.approx(1)
        now += seconds
        count += sum(sent(bucket, now) for bucket in buckets)
        assert count <= rate * now + len(shares) + rate * 0.1


def test_the_share_is_unknown_until_every_group_has_counted_its_partitions() -> None:
    share = PartitionShare("changes", "retries")
    share.assign("changes", 4, 8)
    assert share() == 0
    assert Bucket(100, share, 0.0).wait(1.0) == 1.0
    share.assign("retries", 1, 2)
    assert share() == 0.5
    share.assign("changes", 0, 0)  # the broker did not answer
    assert share() == 0.1
    assert Bucket(100, share, 0.0).wait(0.0) == pytest.approx(0.1)


def test_requests_ahead_of_their_time_delay_others() -> None:
    bucket = Bucket(10, whole, 0.0)
    assert bucket.wait(1.0) == 0
    for _ in range(3):
        bucket.take(1.0)
    assert bucket.behind_seconds(1.0) == pytest.approx(0.2)
    assert bucket.wait(1.0) == pytest.approx(0.3)
    assert bucket.behind_seconds(1.2) == pytest.approx(0)


def test_postponed_messages_have_turns_at_the_rate() -> None:
    bucket = Bucket(4, whole, 0.0)
    turns = [bucket.turn_seconds(10.0, 8) for _ in range(3)]
    assert turns == pytest.approx([2.25, 2.5, 2.75])
    assert bucket.turn_seconds(11.0, 0) == pytest.approx(2.0)
    assert bucket.turn_seconds(11.0, 0, 0.01) == pytest.approx(2.0025)
    assert Bucket(1, whole, 0.0).turn_seconds(0.0, 1e9) == 86_400


def test_a_bucket_is_remembered_until_it_is_full() -> None:
    rates = Rates(whole, 0.0)
    bucket = rates.of("acme", "hook", 2)
    bucket.take(10.0)
    rates.forget_full(10.2)
    assert rates.of("acme", "hook", 4) is bucket
    assert bucket.rate == 4
    rates.forget_full(20.0)
    assert rates.of("acme", "hook", 4) is not bucket
    assert rates.of("acme", "hook", 4).wait(20.0) == 0


def item(user: str, rate: float | None = 10.0, **more: Any) -> Item:
    made = request() | {"user_id": user, "target_key": "hook" if rate else "other", "workspace": "acme"}
    return Item(made, lambda: None, rate=rate, **more)


def run(lanes: Lanes, seconds: float) -> list[tuple[float, int]]:
    """(time, messages) of each attempt, for a caller that looks at `next_at`. Attempts take no time."""
    now, found = 0.0, list[tuple[float, int]]()
    while now <= seconds:
        while (batch := lanes.take(now)) is not None:
            found.append((now, len(batch)))
            lanes.finish(batch, now)
        after = lanes.next_at()
        if after is None:
            return found
        assert after > now
        now = after
    return found


def test_a_lane_begins_an_attempt_for_each_token() -> None:
    lanes = Lanes(64, 10_000_000, 1000, Rates(whole, 0.0))
    for number in range(25):
        lanes.add(item(f"u{number}"), 0.0)
    lanes.add(item("ada", None), 0.0)
    attempts = run(lanes, 60)
    assert attempts[0] == (0.0, 1)  # that of the other target
    assert [at for at, _ in attempts[1:]] == pytest.approx([0.1 * (n + 1) for n in range(25)], abs=0.03)
    assert len(lanes) == 0


def test_a_batch_is_one_request() -> None:
    lanes = Lanes(64, 10_000_000, 1000, Rates(whole, 0.0))
    for number in range(35):
        lanes.add(item(f"u{number}", batching=Batching(10, 0)), 0.0)
    assert [size for _, size in run(lanes, 60)] == [10, 10, 10, 5]


def test_a_full_lane_with_a_rate_holds_up_no_partition() -> None:
    lanes = Lanes(64, 10_000_000, 1000, Rates(whole, 0.0))
    for number in range(100):
        one = item(f"u{number}", tier=None if number < 50 else 1)
        assert lanes.admission(one, 0.0) is Admission.ENTER
        lanes.add(one, 0.0)
        assert lanes.admission(item("new"), 0.0) is (Admission.ENTER if number < 49 else Admission.RATED)
    # Ten seconds of the rate, the second half for messages whose turn has come.
    assert lanes.admission(item("back", tier=0), 0.0) is Admission.RATED
    assert lanes.turn_seconds(item("new"), 0.0) == pytest.approx(10.1)
    assert lanes.admission(item("ada", None), 0.0) is Admission.ENTER


def test_messages_above_the_rate_wait_for_their_turn_and_cost_no_attempt() -> None:
    known = targets(definition("hook", rate=50), definition("other"))
    made = [
        request(user=f"u{n}", delivery_id=f"{key}{n}", target_key=key, first_attempt_at=wall_clock_ms())
        for n in range(30)
        for key in ("hook", "other")
    ]
    channel, steps = Scripted(), list[tuple[str, Step]]()
    sender = dispatcher(channel, known, Recorded(steps), lane_messages=5, rates=Rates(whole, time.monotonic()))
    asyncio.run(send_all(sender, made))
    assert sum(name.startswith("other") for name in channel.sent) == 30
    waiting = [step for _, step in steps if step.postponed]
    assert len(waiting) + len(channel.sent) == 60
    assert waiting
    assert {step.detail for step in waiting} == {"postponed: the target has as many messages as its rate allows"}
    dues = [step.retry["not_before"] for step in waiting if step.retry is not None]
    assert dues == sorted(dues)
    assert {step.retry["attempt"] for step in waiting if step.retry is not None} == {1}
