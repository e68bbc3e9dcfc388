"""Uploaded lists: users enter and leave segments with them, and earlier uploads count."""

from starling_common.kafka.topics import MEMBERSHIP
from starling_common.settings import Clock
from tests.unit.segmenter.segmenting import NOW_MICROS, FeedEntry, MemorySegmenter

VIPS = {"list": "vips"}


def test_people_enter_and_leave_with_the_list() -> None:
    segmenter = MemorySegmenter()
    segmenter.clock(1_000)
    segmenter.define("vips", VIPS)
    segmenter.listed("ada", "vips", correlation_id="upload-1")
    segmenter.listed("bob", "others")
    segmenter.listed("ada", "vips", is_on=False, correlation_id="upload-2")
    entered, exited = records = segmenter.records(MEMBERSHIP)
    assert [(record["user_id"], record["status"], record["sequence"], record["effective_at"]) for record in records] == [
        ("ada", "ENTERED", 1, 1_000),
        ("ada", "EXITED", 2, 1_000),
    ]
    assert entered["cause"] == exited["cause"] == {"kind": "LIST", "message_id": None, "event_name": None}
    assert (entered["correlation_id"], exited["correlation_id"]) == ("upload-1", "upload-2")


def test_a_repeat_changes_nothing_not_even_the_state() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("vips", VIPS)
    segmenter.listed("ada", "vips")
    segmenter.changes()
    before = segmenter.task._rows.stored.copy()
    segmenter.listed("ada", "vips")
    segmenter.listed("eve", "vips", is_on=False)
    segmenter.listed("ada", "others", is_on=False)
    assert segmenter.changes() == []
    assert segmenter.task._rows.stored == before
    assert segmenter.task.refusals == []


def test_a_repeat_at_the_instant_at_which_a_window_ends_leaves_the_exit_to_the_timer() -> None:
    segmenter = MemorySegmenter(Clock.WALL)
    segmenter.define("buyers", {"all": [VIPS, {"event": "Buy", "within": "1s"}]})
    segmenter.listed("ada", "vips", received_at=NOW_MICROS)
    segmenter.track("ada", "Buy", NOW_MICROS // 1000, received_at=NOW_MICROS)
    segmenter.changes()
    segmenter.listed("ada", "vips", received_at=NOW_MICROS + 1_000_000)
    segmenter.clock(NOW_MICROS // 1000 + 1_000, received_at=NOW_MICROS + 1_000_001)
    assert segmenter.changes() == [FeedEntry("ada", "buyers", "EXITED", 2, NOW_MICROS // 1000 + 1_000, "TIMER")]


def test_a_list_that_was_uploaded_before_the_segment_counts() -> None:
    segmenter = MemorySegmenter()
    segmenter.listed("ada", "vips")
    segmenter.listed("bob", "vips")
    segmenter.listed("bob", "vips", is_on=False)
    segmenter.track("eve", "Look", 2_000)
    segmenter.restart()
    segmenter.define("vips", VIPS)
    segmenter.define("others", {"not": VIPS})
    assert sorted(segmenter.changes()) == [
        FeedEntry("ada", "vips", "ENTERED", 1, 2_000, "DEFINITION"),
        FeedEntry("bob", "others", "ENTERED", 1, 2_000, "DEFINITION"),
        FeedEntry("eve", "others", "ENTERED", 1, 2_000, "DEFINITION"),
    ]


def test_a_user_on_a_list_has_a_profile() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("everyone", {"everyone": True})
    segmenter.listed("a/b", "vips")
    assert [entry[:3] for entry in segmenter.changes()] == [("a/b", "everyone", "ENTERED")]
    assert segmenter.task.states().keys() == {b"default/a/b"}


def test_a_list_among_other_conditions_and_in_a_segment_that_another_one_uses() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("buying-vips", {"all": [VIPS, {"event": "Buy", "within": "1s"}]})
    segmenter.define("win-back", {"all": [VIPS, {"not": {"segment": "buying-vips"}}]})
    segmenter.track("ada", "Buy", 1_000)
    segmenter.listed("ada", "vips")
    assert segmenter.changes() == [FeedEntry("ada", "buying-vips", "ENTERED", 1, 1_000, "LIST")]
    segmenter.clock(5_000)
    assert segmenter.changes() == [
        FeedEntry("ada", "buying-vips", "EXITED", 2, 2_000, "TIMER"),
        FeedEntry("ada", "win-back", "ENTERED", 1, 2_000, "TIMER"),
    ]
    segmenter.listed("ada", "vips", is_on=False)
    assert segmenter.changes() == [FeedEntry("ada", "win-back", "EXITED", 2, 5_000, "LIST")]


def test_a_missing_trait_is_held_since_the_upload_that_created_the_profile() -> None:
    held = {"trait": "plan", "op": "missing", "held_for": "1h"}
    live, late = MemorySegmenter(Clock.WALL), MemorySegmenter(Clock.WALL)
    live.define("held", held)
    for segmenter in (live, late):
        segmenter.listed("ada", "vips")
        segmenter.task.advance(NOW_MICROS // 1000 + 1_000_000)
        segmenter.track("ada", "Look", NOW_MICROS // 1000 + 1_000_000, received_at=NOW_MICROS + 1_000_000_000)
    late.define("held", held)
    for segmenter in (live, late):
        segmenter.task.advance(NOW_MICROS // 1000 + 3_700_000)
    assert [entry[:5] for entry in late.changes()] == [entry[:5] for entry in live.changes()]
    assert len(late.members("held")) == 1
