"""The unflushed states of a task."""

from starling_stream.model.ports import Changed
from starling_stream.model.rows import due_bytes, row_of
from starling_stream.state.flush.unflushed import Taken, Unflushed, writes_of

MINUTE = 60_000


def _row(version: int, due: int | None = None) -> bytes:
    return row_of(version, due_bytes(due) + b"p")


def _written(taken: Taken) -> dict[bytes, tuple[int, bytes, int | None, int | None]]:
    return {write.key: (write.at, write.row, write.slot_before, write.slot) for write in writes_of(taken)}


def test_of_many_commits_the_last_row_is_written_and_the_first_index_entry_deleted() -> None:
    unflushed = Unflushed(0, b"")
    unflushed.add({b"a": Changed(_row(1, 5 * MINUTE), _row(2, 6 * MINUTE))}, 10, b"m1")
    unflushed.add({b"a": Changed(_row(2, 6 * MINUTE), _row(3, 9 * MINUTE))}, 20, b"m2")
    taken = unflushed.take()
    assert _written(taken) == {b"a": (20, _row(3, 9 * MINUTE), 5, 9)}
    assert (taken.position, taken.meta) == (20, b"m2")


def test_changes_of_a_failed_flush_never_replace_newer_ones() -> None:
    unflushed = Unflushed(0, b"")
    unflushed.add({b"a": Changed(None, _row(1, MINUTE)), b"b": Changed(None, _row(1))}, 10, b"")
    failed = unflushed.take()
    unflushed.add({b"a": Changed(_row(1, MINUTE), _row(2, 2 * MINUTE))}, 20, b"")
    unflushed.put_back(failed)
    assert _written(unflushed.take()) == {b"a": (20, _row(2, 2 * MINUTE), None, 2), b"b": (10, _row(1), None, None)}


def test_the_size_is_that_of_the_unflushed_changes() -> None:
    unflushed = Unflushed(0, b"")
    grown = unflushed.add({b"a": Changed(None, _row(1)), b"b": Changed(None, _row(1))}, 10, b"")
    assert unflushed.size_bytes == grown > len(_row(1)) * 2
    assert unflushed.add({b"a": Changed(_row(1), _row(2))}, 11, b"") == 0
    taken = unflushed.take()
    assert (taken.size_bytes, unflushed.size_bytes) == (grown, 0)
    unflushed.put_back(taken)
    assert unflushed.size_bytes == grown


def test_after_a_drop_only_the_position_is_tracked_until_it_resumes() -> None:
    unflushed = Unflushed(0, b"")
    unflushed.add({b"a": Changed(None, _row(1))}, 10, b"m1")
    taken = unflushed.take()
    unflushed.drop()
    unflushed.put_back(taken)
    unflushed.add({b"b": Changed(None, _row(1))}, 20, b"m2")
    assert (len(unflushed), unflushed.size_bytes, unflushed.position, unflushed.meta) == (0, 0, 20, b"m2")
    unflushed.resume()
    unflushed.add({b"c": Changed(None, _row(1))}, 30, b"m3")
    assert list(_written(unflushed.take())) == [b"c"]
