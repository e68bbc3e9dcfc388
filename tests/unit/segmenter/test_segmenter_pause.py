"""Paused segments: nobody enters or leaves, nothing is forgotten, and the difference is told when they go on."""

from tests.unit.segmenter.segmenting import MemorySegmenter, Seen

DAY_MS = 86_400_000
TODAY = {"event": "Buy", "within": "1d"}
TWICE = {"event": "Buy", "op": "gte", "value": 2}


def test_members_stay_as_they_are_and_the_net_difference_is_told_at_the_end() -> None:
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
    told = segmenter.changes()
    assert sorted(told) == [
        Seen("enters", "today", "ENTERED", 1, 2 * DAY_MS + 1, "DEFINITION"),
        Seen("leaves", "today", "EXITED", 2, 2 * DAY_MS + 1, "DEFINITION"),
        Seen("there and gone", "today", "ENTERED", 1, 2 * DAY_MS + 1, "DEFINITION"),
    ]
    segmenter.clock(4 * DAY_MS)  # timers go on where they were
    assert {(seen.user, seen.effective_at, seen.cause) for seen in segmenter.changes()} == {
        (user, 3 * DAY_MS, "TIMER") for user in ("enters", "stays", "there and gone")
    }


def test_whoever_came_and_went_during_the_pause_is_not_told_of() -> None:
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
    assert segmenter.changes() == [Seen("u1", "twice", "ENTERED", 1, 2_000, "DEFINITION")]


def test_segments_built_on_a_paused_one_see_it_as_it_was() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("today", TODAY)
    segmenter.define("nested", {"all": [{"segment": "today"}, {"not": {"event": "Cancel"}}]})
    segmenter.track("u1", "Buy", 1_000)
    assert [seen[:3] for seen in segmenter.changes()] == [("u1", "today", "ENTERED"), ("u1", "nested", "ENTERED")]
    segmenter.define("today", TODAY, action="PAUSED")
    segmenter.clock(2 * DAY_MS)
    segmenter.track("u2", "Buy", 2 * DAY_MS)
    assert segmenter.changes() == []
    segmenter.define("other", {"event": "Buy"})  # a switch for another's sake changes nothing here either
    assert {seen.segment for seen in segmenter.changes()} == {"other"}
    segmenter.track("u1", "Cancel", 2 * DAY_MS)
    assert [seen[:3] for seen in segmenter.changes()] == [("u1", "nested", "EXITED")]  # what is not paused goes on
    segmenter.define("today", TODAY, action="RESUMED")
    assert sorted(seen[:3] for seen in segmenter.changes()) == [
        ("u1", "today", "EXITED"),
        ("u2", "nested", "ENTERED"),
        ("u2", "today", "ENTERED"),
    ]


def test_a_paused_segment_that_is_revised_waits_with_its_new_version() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("s", TWICE)
    segmenter.track("u1", "Buy", 1_000)
    segmenter.define("s", TWICE, action="PAUSED")
    segmenter.define("s", {"event": "Buy"}, version=2, action="PAUSED")
    assert segmenter.changes() == []
    segmenter.define("s", {"event": "Buy"}, version=2, action="RESUMED")
    assert segmenter.changes() == [Seen("u1", "s", "ENTERED", 1, 1_000, "DEFINITION")]


def test_archiving_a_paused_segment_tells_its_members_exits() -> None:
    segmenter = MemorySegmenter()
    segmenter.define("s", {"event": "Buy"})
    segmenter.track("u1", "Buy", 1_000)
    segmenter.define("s", {"event": "Buy"}, action="PAUSED")
    segmenter.changes()
    segmenter.archive("s")
    assert segmenter.changes() == [Seen("u1", "s", "EXITED", 2, 1_000, "DEFINITION")]


def test_progress_names_a_paused_segment_only_when_it_goes_on_and_the_set_has_another_name() -> None:
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
