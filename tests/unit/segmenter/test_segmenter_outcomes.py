"""Outcomes of messages as events of their recipients: names, times and cost."""

from typing import Any

import pytest

from starling_common.kafka.topics import DELIVERY
from starling_common.records.message_events import EVENT_NAMES
from starling_common.settings import Clock
from tests.unit.segmenter.segmenting import NOW_MICROS, FeedEntry, MemorySegmenter

NOW_MS = NOW_MICROS // 1000
DAY_MS = 86_400_000
DELIVERED = {"event": "Message Delivered"}


@pytest.mark.parametrize(
    ("outcome", "name"),
    [
        ("SENT", "Message Sent"),
        ("DELIVERED", "Message Delivered"),
        ("OPENED", "Message Opened"),
        ("CLICKED", "Message Clicked"),
        ("BOUNCED", "Message Bounced"),
        ("FAILED", "Message Failed"),
        ("SUPPRESSED", "Message Suppressed"),
    ],
)
def test_each_outcome_is_an_event_of_its_name(outcome: str, name: str) -> None:
    segmenter = MemorySegmenter()
    segmenter.define("named", {"event": name})
    for other in EVENT_NAMES.keys() - {outcome}:
        segmenter.report("u1", other)
    assert segmenter.changes() == []
    segmenter.report("u1", outcome, correlation_id="c-9")
    (entered,) = segmenter.records()
    assert entered["cause"] == {"kind": "EVENT", "message_id": None, "event_name": name}
    assert (entered["correlation_id"], entered["received_at"]) == ("c-9", NOW_MICROS)


@pytest.mark.parametrize("outcome", ["RETRYING", "LOST"])
def test_a_retried_attempt_and_an_unknown_outcome_are_no_events(outcome: str) -> None:
    segmenter = MemorySegmenter()
    segmenter.define("messaged", {"event": "Message *"})
    segmenter.define("known", {"everyone": True})
    segmenter.report("u1", outcome)
    assert (segmenter.changes(), segmenter.task.refusals, segmenter.task.states()) == ([], [], {})


def test_its_properties_are_those_of_the_report() -> None:
    where = [
        {"property": "segment_key", "op": "eq", "value": "vip"},
        {"property": "channel", "op": "eq", "value": "webhook"},
        {"property": "target_key", "op": "eq", "value": "crm"},
        {"property": "delivery_id", "op": "exists"},
        {"property": "outcome", "op": "eq", "value": "FAILED"},
        {"property": "attempt", "op": "gte", "value": 2},
        {"property": "status_code", "op": "between", "value": [500, 599]},
        {"property": "detail", "op": "missing"},
    ]
    segmenter = MemorySegmenter()
    segmenter.define("failed", {"event": "Message Failed", "where": {"all": where}})
    fits: dict[str, Any] = {"segment_key": "vip", "attempt": 2, "status_code": 503, "detail": None}
    for field, other in {"segment_key": None, "attempt": 1, "status_code": None, "detail": "no"}.items():
        segmenter.report("u1", "FAILED", **fits | {field: other})
    segmenter.report("u2", "FAILED", **fits)
    assert [entry.user for entry in segmenter.changes()] == ["u2"]


def test_a_condition_on_every_event_includes_outcomes_unless_the_segment_excludes_them() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("anything", {"event": "*"})
    segmenter.define("own", {"event": "*", "where": {"property": "delivery_id", "op": "missing"}})
    segmenter.report("u1", "DELIVERED")
    segmenter.track("u2", "Page Viewed", 1000)
    assert [entry[:2] for entry in segmenter.changes()] == [("u1", "anything"), ("u2", "anything"), ("u2", "own")]


def test_under_the_wall_clock_the_event_time_is_that_of_the_report() -> None:
    segmenter = MemorySegmenter(Clock.WALL)
    segmenter.define("lately", {**DELIVERED, "within": "1d"})
    segmenter.report("u1", "DELIVERED", NOW_MS, received_at=NOW_MICROS - 20 * 3_600_000_000)  # after twenty hours of retries
    segmenter.task.advance(NOW_MS + DAY_MS)
    assert segmenter.changes() == [
        FeedEntry("u1", "lately", "ENTERED", 1, NOW_MS, "EVENT"),
        FeedEntry("u1", "lately", "EXITED", 2, NOW_MS + DAY_MS, "TIMER"),
    ]


def test_under_the_wall_clock_a_late_outcome_counts_at_its_own_time() -> None:
    segmenter = MemorySegmenter(Clock.WALL)
    segmenter.define("lately", {**DELIVERED, "within": "1d"})
    segmenter.task.advance(NOW_MS)
    segmenter.report("u1", "DELIVERED", NOW_MS - 2 * DAY_MS)
    segmenter.report("u2", "DELIVERED", NOW_MS - DAY_MS + 5)
    segmenter.task.advance(NOW_MS + DAY_MS)
    assert segmenter.changes() == [
        FeedEntry("u2", "lately", "ENTERED", 1, NOW_MS, "EVENT"),
        FeedEntry("u2", "lately", "EXITED", 2, NOW_MS + 5, "TIMER"),
    ]


@pytest.mark.parametrize("begin_ms", [850_000_000_000, NOW_MS + 1000 * DAY_MS], ids=["the past", "the future"])
def test_under_the_event_clock_the_event_time_is_stream_time_which_does_not_advance(begin_ms: int) -> None:
    segmenter = MemorySegmenter()
    segmenter.define("lately", {**DELIVERED, "within": "1d"})
    segmenter.track("u1", "Order Completed", begin_ms)
    segmenter.report("u1", "DELIVERED", NOW_MS)
    assert segmenter.task.stream_time_ms == begin_ms
    segmenter.clock(begin_ms + 2 * DAY_MS)
    assert segmenter.changes() == [
        FeedEntry("u1", "lately", "ENTERED", 1, begin_ms, "EVENT"),
        FeedEntry("u1", "lately", "EXITED", 2, begin_ms + DAY_MS, "TIMER"),
    ]


def test_a_repeated_unit_of_work_uses_the_stream_time_of_the_repetition() -> None:
    """The value is decoded once, and folded again for each aborted unit of work."""
    segmenter = MemorySegmenter()
    segmenter.define("lately", {**DELIVERED, "within": "1d"})
    segmenter.report("u1", "DELIVERED")
    (record,) = [one for one in segmenter.task._processed if one.topic == DELIVERY]
    segmenter.clock(5 * DAY_MS)
    segmenter.changes()
    fold, rows = segmenter.task._fold, segmenter.task._rows
    sealed = fold.step([record], rows)
    assert len(sealed.outputs) == 2  # the feed and its state topic
    segmenter.task._commit(sealed)
    assert [entry[2:5] for entry in segmenter.changes()] == [("ENTERED", 3, 5 * DAY_MS)]


def test_an_outcome_that_no_segment_refers_to_is_not_stored() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("failed", {"event": "Message Failed", "within": "9d"})
    segmenter.define("buyers", {"event": "Order Completed", "within": "9d"})
    segmenter.track("u1", "Order Completed", 1000)
    segmenter.track("u2", "Order Completed", 5000)
    before = dict(segmenter.task._rows.stored)
    segmenter.report("u1", "DELIVERED")
    assert segmenter.task._rows.stored == before
    segmenter.report("u1", "FAILED")
    assert segmenter.task._rows.stored != before


def test_an_outcome_creates_the_profile_of_a_new_user() -> None:
    """As any event does: the known users must not depend on the definitions."""
    segmenter = MemorySegmenter()
    segmenter.define("known", {"everyone": True})
    segmenter.report("u1", "DELIVERED")
    assert [entry[:3] for entry in segmenter.changes()] == [("u1", "known", "ENTERED")]


def test_the_message_about_a_change_causes_no_further_change() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("messaged", DELIVERED)
    for _ in range(3):  # each change is sent to a webhook, and its outcome comes back
        segmenter.report("u1", "DELIVERED", segment_key="messaged")
    assert [entry[:4] for entry in segmenter.changes()] == [("u1", "messaged", "ENTERED", 1)]


def test_an_undecodable_outcome_becomes_a_dead_letter() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("messaged", DELIVERED)
    segmenter.task.feed(DELIVERY, b"default/u1", b"\x00\x00\x00\x00\x01broken")
    segmenter.report("u1", "DELIVERED")
    assert [(refusal.record.topic, refusal.code) for refusal in segmenter.task.refusals] == [(DELIVERY, "broken_avro")]
    assert segmenter.members("messaged") == {"u1"}


@pytest.mark.parametrize("clock", [Clock.EVENT, Clock.WALL])
@pytest.mark.parametrize(
    "where",
    [
        {**DELIVERED, "within": "2d"},
        {"event": "*", "op": "gte", "value": 3, "within": "4d"},
        {"sequence": [DELIVERED, {"event": "Order Completed", "within": "1d"}]},
        {"sequence": [DELIVERED, {"not": {"event": "Order Completed"}, "for": "2h"}]},
        {"event": "Message *", "measure": {"last": "outcome"}, "op": "eq", "value": "DELIVERED"},
    ],
)
def test_history_before_the_definition_equals_live(clock: Clock, where: dict[str, Any]) -> None:
    early, late = MemorySegmenter(clock), MemorySegmenter(clock)
    early.define("messaged", where)
    for segmenter in (early, late):
        _live_through_ten_days(segmenter)
    late.define("messaged", where)
    assert early.members("messaged") == late.members("messaged") != set()
    end_ms = early.task.stream_time_ms
    early.changes(), late.changes()
    for segmenter in (early, late):
        segmenter.task.advance(end_ms + 9 * DAY_MS)
    assert [entry._replace(sequence=0) for entry in early.changes()] == [entry._replace(sequence=0) for entry in late.changes()]


def _live_through_ten_days(segmenter: MemorySegmenter) -> None:
    """Receipts are an hour apart, event times a day."""
    begin_ms = NOW_MS if segmenter.stream_clock is Clock.WALL else 850_000_000_000
    apart_ms = 3_600_000 if segmenter.stream_clock is Clock.WALL else DAY_MS
    for number in range(10):
        wall_ms = NOW_MS + number * 3_600_000
        user, own_ms = f"u{number % 3}", begin_ms + number * apart_ms
        segmenter.track(user, "Order Completed", own_ms, received_at=wall_ms * 1000)
        segmenter.report(user, ("DELIVERED", "CLICKED")[number % 2], wall_ms + 1)
        segmenter.report(f"u{(number + 1) % 3}", "DELIVERED", wall_ms + 2, received_at=(NOW_MS - DAY_MS) * 1000)
