"""The committed position is never beyond an uncompleted record, and no completed one is repeated; the oracle is a set."""

import random

from hypothesis import given
from hypothesis import strategies as st

from starling_delivery.progress import EXACT_SPAN, METADATA_LIMIT, MOST_SPAN, Positions, Progress


@given(st.integers(0, 5), st.permutations(range(12)), st.integers(0, 12))
def test_what_is_restored_is_what_was_done(start: int, order: list[int], finished: int) -> None:
    progress = Progress(start)
    done = {start + offset for offset in order[:finished]}
    for offset in done:
        progress.finish(offset)
    restored = Progress.restored(progress.position, progress.metadata())
    for offset in range(start, start + 15):
        assert progress.is_done(offset) == restored.is_done(offset) == (offset in done)
    assert progress.position == next(offset for offset in range(start, start + 15) if offset not in done)


def test_metadata_never_grows_beyond_what_the_broker_takes() -> None:
    progress = Progress(0)
    for offset in range(1, 20_000, 2):
        progress.finish(offset)
    text = progress.metadata()
    assert 0 < len(text) <= METADATA_LIMIT
    restored = Progress.restored(0, text)
    assert restored.is_done(1)
    assert not any(restored.is_done(offset) for offset in range(0, 20_000, 2))


def test_metadata_that_is_not_ours_counts_as_none() -> None:
    for text in ("", "null", "{}", "hello", "[1]", '[["a", "b"]]'):
        assert Progress.restored(7, text) == Progress(7)


def test_a_record_between_markers_of_transactions_is_no_gap() -> None:
    progress = Progress(0)
    for offset in (3, 4, 7, 9):
        assert progress.read(offset)
    for offset in (9, 4, 3):
        progress.finish(offset)
    assert progress.position == 7
    progress.finish(7)
    assert (progress.position, progress.metadata()) == (10, "")


def test_expired_records_before_the_first_one_read_are_no_gap() -> None:
    progress = Progress.restored(10, "[[2,3]]")
    assert not Progress.restored(10, "[[2,3]]").read(5)
    assert progress.read(1_000_000_000)
    assert progress.position == 1_000_000_000


@given(st.lists(st.integers(1, 4), min_size=1, max_size=15), st.data())
def test_no_uncompleted_record_is_ever_behind_the_position(gaps: list[int], data: st.DataObject) -> None:
    offsets = [sum(gaps[: n + 1]) for n in range(len(gaps))]
    positions, place = Positions(), ("t", 0)
    positions.open(place, Progress(0))
    read = data.draw(st.integers(1, len(offsets)))
    assert all(positions.read(place, offset) for offset in offsets[:read])
    done = data.draw(st.sets(st.sampled_from(offsets[:read]), min_size=1))
    for offset in done:
        positions.finish(place, offset)
    [(_, position, metadata)] = positions.take_changes()
    left = [offset for offset in offsets[:read] if offset not in done]
    assert position == (left[0] if left else offsets[read - 1] + 1)
    again = Positions()
    again.open(place, Progress.restored(position, metadata))
    assert [offset for offset in offsets if offset >= position and again.read(place, offset)] == [*left, *offsets[read:]]
    assert list(positions.take_changes()) == []


def test_a_partition_that_went_elsewhere_is_forgotten() -> None:
    positions, place = Positions(), ("t", 0)
    positions.open(place, Progress(0))
    assert positions.read(place, 0)
    positions.close(place)
    positions.finish(place, 0)
    assert not positions.read(place, 1)
    assert list(positions.take_changes()) == []


def test_a_commit_that_failed_is_repeated() -> None:
    positions, place = Positions(), ("t", 0)
    positions.open(place, Progress(0))
    positions.read(place, 0)
    positions.finish(place, 0)
    assert list(positions.take_changes()) == [(place, 1, "")]
    positions.mark_changed()
    assert list(positions.take_changes()) == [(place, 1, "")]


def test_one_record_that_takes_long_bounds_what_is_read_meanwhile() -> None:
    positions, place = Positions(), ("t", 0)
    positions.open(place, Progress(0))
    positions.read(place, 0)
    positions.read(place, MOST_SPAN - 2)
    assert not positions.is_full(place)
    positions.read(place, MOST_SPAN - 1)
    assert positions.is_full(place)
    positions.finish(place, 0)
    assert not positions.is_full(place)


def test_the_bitmap_keeps_every_completed_offset_of_the_exact_span() -> None:
    progress = Progress(1_000)
    offsets = [offset for offset in range(1_001, 1_000 + EXACT_SPAN) if random.Random(offset).random() < 0.5]
    after = progress.with_finished(offsets)
    assert (progress.done, after.position) == (set(), 1_000)
    text = after.metadata()
    assert len(text) <= METADATA_LIMIT
    assert Progress.restored(1_000, text).done == set(offsets)


def test_a_claim_grants_what_is_assigned_and_not_completed_and_marks_nothing() -> None:
    positions = Positions()
    positions.open(("t", 0), Progress(5))
    for offset in (5, 6, 7):
        positions.read(("t", 0), offset)
    positions.finish(("t", 0), 6)
    claim = positions.claim({("t", 0): {5, 6}, ("t", 1): {5}})
    assert (set(claim.granted), list(claim.commits)) == ({(("t", 0), 5)}, [(("t", 0), 7, "")])
    assert list(positions.claim({}).commits) == []
    positions.mark_changed()  # the transaction was aborted
    assert list(positions.claim({}).commits) == [(("t", 0), 5, "[[1,1]]")]
    positions.finish(("t", 0), 5)
    positions.finish(("t", 0), 5)
    assert list(positions.claim({("t", 0): {5}}).commits) == [(("t", 0), 7, "")]
