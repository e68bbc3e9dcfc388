"""The messages of a membership change, and the step after an attempt."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starling_delivery.channel import Again, Delivered, Gone, Impossible
from starling_delivery.policy import Schedule, after, delayed, message_of, postponed, requests_for
from tests.unit.delivery.making import change, definition, request, targets
from tests.unit.ingest.rig import Edge

SCHEDULE = Schedule((5.0, 300.0, 1800.0), 86_400.0)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        pytest.param({}, True, id="everything by default"),
        pytest.param({"segments": ["vip", "other"]}, True, id="a segment that is listed"),
        pytest.param({"segments": ["other"]}, False, id="a segment that is not"),
        pytest.param({"segments": []}, True, id="an empty list is no list"),
        pytest.param({"events": ["entered"]}, True, id="entries only"),
        pytest.param({"events": ["exited"]}, False, id="exits only"),
        pytest.param({"disabled": True}, False, id="switched off"),
    ],
)
def test_a_webhook_receives_its_subscribed_changes(document: dict[str, Any], expected: bool) -> None:
    assert bool(requests_for(change(), targets(definition(**document)), "webhook", 0)) is expected


def test_an_archived_or_foreign_webhook_receives_nothing() -> None:
    known = targets(definition(), definition(action="ARCHIVED"), {**definition("far"), "workspace": "other"})
    assert requests_for(change(), known, "webhook", 0) == []


def test_a_message_is_whole_and_the_same_at_every_attempt() -> None:
    [made] = requests_for(change(status="EXITED"), targets(), "webhook", 7)
    body = json.loads(made["payload"])
    assert body["type"] == "segment.exited"
    assert body["timestamp"] == "1970-01-01T00:00:01.000Z"
    assert body["data"]["traits"] == {"plan": "pro"}
    assert body["data"]["cause"] == {"kind": "EVENT", "message_id": "m1", "event_name": "Order Completed"}
    assert message_of(made).message_id == change(status="EXITED")["event_id"]
    [again] = requests_for(change(status="EXITED"), targets(), "webhook", 99)
    assert (again["delivery_id"], again["payload"]) == (made["delivery_id"], made["payload"])


def test_a_webhook_gets_calls_of_the_segment_specification_in_their_formats() -> None:
    known = targets(definition("a", format="segment-track"), definition("b", format="segment-identify"), definition("c"))
    made = {one["target_key"]: one for one in requests_for(change(status="EXITED"), known, "webhook", 0)}
    common = {
        "messageId": "event-of-ada-vip-EXITED",
        "userId": "ada",
        "timestamp": "1970-01-01T00:00:01.000Z",
        "context": {"traits": {"plan": "pro"}, "library": {"name": "starling-webhooks", "version": "1"}},
    }
    assert json.loads(made["a"]["payload"]) == common | {
        "type": "track",
        "event": "Audience Exited",
        "properties": {"audience_key": "vip", "segment_name": "VIP", "segment_version": 1, "sequence": 2, "memberships": ["vip"]},
    }
    assert json.loads(made["b"]["payload"]) == common | {"type": "identify", "traits": {"vip": False}}
    assert {message_of(one).message_id for one in made.values()} == {"event-of-ada-vip-EXITED"}


@pytest.mark.parametrize(("name", "path"), [("segment-track", "track"), ("segment-identify", "identify")])
@pytest.mark.parametrize("status", ["ENTERED", "EXITED"])
def test_the_edge_accepts_the_calls_of_the_segment_specification(name: str, path: str, status: str) -> None:
    [made] = requests_for(change(status=status), targets(definition(format=name)), "webhook", 0)
    edge = Edge().open()
    assert edge.ask("POST", f"/v1/{path}", json.loads(made["payload"])).status == 200
    [received] = edge.received()
    assert (received["kind"], received["user_id"], received["message_id"]) == (path, "ada", change(status=status)["event_id"])


def test_a_webhook_with_a_format_of_a_later_release_is_refused() -> None:
    with pytest.raises(ValueError, match="webhook default/hook: the format 'xml' is unknown"):
        targets(definition(format="xml"))


def test_two_webhooks_get_two_messages_with_ids_of_their_own() -> None:
    made = requests_for(change(), targets(definition("a"), definition("b")), "webhook", 0)
    assert [item["target_key"] for item in made] == ["a", "b"]
    assert made[0]["delivery_id"] != made[1]["delivery_id"]


def test_delivered_needs_nothing_more() -> None:
    step = after(request(), Delivered(204), SCHEDULE, 0, 0.5)
    assert (step.outcome, step.status_code, step.retry, step.dead, step.disable) == ("DELIVERED", 204, None, None, False)


def test_gone_switches_the_webhook_off_and_keeps_the_message() -> None:
    step = after(request(), Gone("410", 410), SCHEDULE, 0, 0.5)
    assert (step.outcome, step.disable, step.dead) == ("FAILED", True, "410")


def test_impossible_is_not_tried_again() -> None:
    step = after(request(), Impossible("a private network"), SCHEDULE, 0, 0.5)
    assert (step.outcome, step.retry, step.dead) == ("FAILED", None, "a private network")


def test_a_failure_is_tried_again_with_everything_but_the_attempt_unchanged() -> None:
    made = request()
    step = after(made, Again("503", 503), SCHEDULE, 1_000, 0.5)
    assert step.outcome == "RETRYING"
    assert step.retry == made | {"attempt": 2, "not_before": 6_000, "last_error": "503"}


def test_the_other_sides_own_wish_is_a_floor() -> None:
    step = after(request(), Again("429", 429, retry_after_seconds=60.0), SCHEDULE, 0, 0.5)
    assert step.retry is not None
    assert step.retry["not_before"] == 60_000


def test_after_a_day_it_goes_to_the_dead_letters() -> None:
    step = after(request(attempt=9), Again("503", 503), SCHEDULE, 86_400_000, 0.5)
    assert (step.outcome, step.retry) == ("FAILED", None)
    assert step.dead == "given up after 9 attempts: 503"


@given(st.integers(1, 50), st.floats(0, 1, exclude_max=True), st.integers(0, 86_400_000))
def test_every_wait_is_the_schedules_within_a_fifth(attempt: int, jitter: float, now_ms: int) -> None:
    due = SCHEDULE.next_attempt_ms(request(attempt=attempt), now_ms, None, jitter)
    delay = SCHEDULE.delays_seconds[min(attempt, 3) - 1] * 1000
    if due is None:
        assert now_ms + delay * 1.2 >= 86_400_000 - 1
    else:
        assert now_ms + delay * 0.8 - 1 <= due <= now_ms + delay * 1.2
        assert due <= 86_400_000


@pytest.mark.parametrize(("tier", "seconds"), [(None, 5.0), (0, 300.0), (1, 1800.0), (2, 1800.0), (4, 1800.0)])
def test_a_postponement_is_one_tier_longer_than_the_last_one_up_to_half_an_hour(tier: int | None, seconds: float) -> None:
    step = postponed(request(), "full", tier, Schedule((5.0, 300.0, 1800.0, 7200.0, 18_000.0), 86_400.0), 1_000, 0.5)
    assert step.tier_seconds == seconds
    assert step.retry == request() | {"not_before": 1_000 + int(seconds * 1000), "last_error": "postponed: full"}


def test_the_first_postponement_in_a_row_is_reported() -> None:
    first = postponed(request(), "full", None, SCHEDULE, 0, 0.5)
    assert (first.outcome, first.detail, first.postponed) == ("RETRYING", "postponed: full", True)
    assert first.retry is not None
    second = postponed(first.retry, "full", 0, SCHEDULE, 0, 0.5)
    assert (second.outcome, second.postponed) == (None, True)
    attempted = after(first.retry, Again("503", 503), SCHEDULE, 0, 0.5)
    assert attempted.retry is not None
    assert postponed(attempted.retry, "full", 0, SCHEDULE, 0, 0.5).outcome == "RETRYING"


def test_a_message_is_postponed_for_a_day_at_most() -> None:
    step = postponed(request(attempt=3), "full", 2, SCHEDULE, 86_400_000, 0.5)
    assert (step.outcome, step.retry, step.postponed) == ("FAILED", None, False)
    assert step.dead == "given up after 2 attempts: full"


@pytest.mark.parametrize(
    ("attempt", "retry_after", "tier"), [(1, None, 5.0), (2, None, 300.0), (9, None, 1800.0), (1, 6.0, 300.0), (1, 3600.0, 1800.0)]
)
def test_a_retry_waits_in_the_shortest_tier_that_is_long_enough(attempt: int, retry_after: float | None, tier: float) -> None:
    step = after(request(attempt=attempt), Again("503", 503, retry_after_seconds=retry_after), SCHEDULE, 0, 0.99)
    assert step.tier_seconds == tier


def test_a_retry_from_outside_waits_in_a_tier_unchanged() -> None:
    made = request(not_before=250_000)
    step = delayed(made, SCHEDULE, 1_000)
    assert (step.outcome, step.retry, step.tier_seconds) == (None, made, 300.0)


def test_a_retry_from_outside_waits_for_the_delay_of_the_longest_tier_at_most() -> None:
    made = request(not_before=2**62)
    step = delayed(made, SCHEDULE, 1_000)
    assert (step.outcome, step.retry, step.tier_seconds) == (None, made | {"not_before": 1_801_000}, 1800.0)


def test_a_record_of_a_tier_waits_for_its_delay_with_jitter_or_for_the_longest_retry_after() -> None:
    assert [SCHEDULE.longest_ms(tier) for tier in range(3)] == [6_000, 360_000, 3_600_000]
    assert Schedule((5.0, 18_000.0), 86_400.0).longest_ms(1) == 21_600_000
