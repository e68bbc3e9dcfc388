"""Paused segments: members stay unchanged, nothing is lost, and resuming emits the net difference."""

from tests.unit.segmenter.segmenting import FeedEntry, MemorySegmenter

DAY_MS = 86_400_000
TODAY = {"event": "Buy", "within": "1d"}
TWICE = {"event": "Buy", "op": "gte", "value": 2}


def test_members_stay_unchanged_and_the_net_difference_is_emitted_at_the_end() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("today", TODAY)
    segmenter.track("leaves", "Buy", 1_000)
    segmenter.track("stays", "Buy", 1_000)
    assert len(segmenter.changes()) == 2
    segmenter.define("today", TODAY, action="PAUSED")
    segmenter.track("enters", "Buy", 2 * DAY_MS)
    segmenter.track("stays", "Buy", 2 * DAY_MS)
    segmenter.track("there and gone", "Buy", 2 * DAY_MS)
    segmenter.clock(2 * DAY_MS + 1)
    assert segmenter.changes() == []
    assert segmenter.members("today") == {"leaves", "stays"}
    segmenter.define("today", TODAY, action="RESUMED")
    changes = segmenter.changes()
    assert sorted(changes) == [
        FeedEntry("enters", "today", "ENTERED", 1, 2 * DAY_MS + 1, "DEFINITION"),
        FeedEntry("leaves", "today", "EXITED", 2, 2 * DAY_MS + 1, "DEFINITION"),
        FeedEntry("there and gone", "today", "ENTERED", 1, 2 * DAY_MS + 1, "DEFINITION"),
    ]
    segmenter.clock(4 * DAY_MS)  # timers continue
    assert {(entry.user, entry.effective_at, entry.cause) for entry in segmenter.changes()} == {
        (user, 3 * DAY_MS, "TIMER") for user in ("enters", "stays", "there and gone")
    }


def test_a_user_who_entered_and_left_during_the_pause_has_no_changes() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("today", TODAY)
    segmenter.define("today", TODAY, action="PAUSED")
    segmenter.track("u1", "Buy", 1_000)
    segmenter.clock(3 * DAY_MS)
    segmenter.define("today", TODAY, action="RESUMED")
    assert segmenter.changes() == []


def test_history_of_before_and_during_the_pause_counts() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("twice", TWICE)
    segmenter.track("u1", "Buy", 1_000)
    segmenter.define("twice", TWICE, action="PAUSED")
    segmenter.restart()
    segmenter.track("u1", "Buy", 2_000)
    assert segmenter.changes() == []
    segmenter.define("twice", TWICE, action="RESUMED")
    assert segmenter.changes() == [FeedEntry("u1", "twice", "ENTERED", 1, 2_000, "DEFINITION")]


def test_segments_that_use_a_paused_one_see_unchanged_members() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("today", TODAY)
    segmenter.define("nested", {"all": [{"segment": "today"}, {"not": {"event": "Cancel"}}]})
    segmenter.track("u1", "Buy", 1_000)
    assert [entry[:3] for entry in segmenter.changes()] == [("u1", "today", "ENTERED"), ("u1", "nested", "ENTERED")]
    segmenter.define("today", TODAY, action="PAUSED")
    segmenter.clock(2 * DAY_MS)
    segmenter.track("u2", "Buy", 2 * DAY_MS)
    assert segmenter.changes() == []
    segmenter.define("other", {"event": "Buy"})  # a switch for another segment changes nothing here
    assert {entry.segment for entry in segmenter.changes()} == {"other"}
    segmenter.track("u1", "Cancel", 2 * DAY_MS)
    assert [entry[:3] for entry in segmenter.changes()] == [("u1", "nested", "EXITED")]  # it is not paused itself
    segmenter.define("today", TODAY, action="RESUMED")
    assert sorted(entry[:3] for entry in segmenter.changes()) == [
        ("u1", "today", "EXITED"),
        ("u2", "nested", "ENTERED"),
        ("u2", "today", "ENTERED"),
    ]


def test_a_revised_paused_segment_stays_paused_with_its_new_version() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("s", TWICE)
    segmenter.track("u1", "Buy", 1_000)
    segmenter.define("s", TWICE, action="PAUSED")
    segmenter.define("s", {"event": "Buy"}, version=2, action="PAUSED")
    assert segmenter.changes() == []
    segmenter.define("s", {"event": "Buy"}, version=2, action="RESUMED")
    assert segmenter.changes() == [FeedEntry("u1", "s", "ENTERED", 1, 1_000, "DEFINITION")]


def test_archiving_a_paused_segment_emits_the_exits_of_its_members() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("s", {"event": "Buy"})
    segmenter.track("u1", "Buy", 1_000)
    segmenter.define("s", {"event": "Buy"}, action="PAUSED")
    segmenter.changes()
    segmenter.archive("s")
    assert segmenter.changes() == [FeedEntry("u1", "s", "EXITED", 2, 1_000, "DEFINITION")]


def test_progress_lacks_a_paused_segment_and_the_set_has_another_name() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("s", {"event": "Buy"})
    names = [segmenter.log.current().name]
    assert segmenter.log.current().versions == {"default/s": 1}
    segmenter.define("s", {"event": "Buy"}, action="PAUSED")
    names.append(segmenter.log.current().name)
    assert segmenter.records("segments.progress")[-1]["definitions"] == {}
    segmenter.define("s", {"event": "Buy"}, action="RESUMED")
    names.append(segmenter.log.current().name)
    assert segmenter.records("segments.progress")[-1]["definitions"] == {"default/s": 1}
    assert names[0] == names[2] != names[1]
