"""The states that wait for the tier."""

from starling_stream.model.ports import Changed
from starling_stream.model.rows import due_bytes, row_of
from starling_stream.state.unflushed import Taken, Unflushed, writes_of

MINUTE = 60_000


def _row(version: int, due: int | None = None) -> bytes:
    return row_of(version, due_bytes(due) + b"p")


def _written(taken: Taken) -> dict[bytes, tuple[int, bytes, int | None, int | None]]:
    return {write.key: (write.at, write.row, write.slot_before, write.slot) for write in writes_of(taken)}


def test_of_many_commits_the_last_row_is_written_and_the_index_moves_from_the_first() -> None:
    kept = Unflushed(0, b"")
    kept.add({b"a": Changed(_row(1, 5 * MINUTE), _row(2, 6 * MINUTE))}, 10, b"m1")
    kept.add({b"a": Changed(_row(2, 6 * MINUTE), _row(3, 9 * MINUTE))}, 20, b"m2")
    taken = kept.take()
    assert _written(taken) == {b"a": (20, _row(3, 9 * MINUTE), 5, 9)}
    assert (taken.position, taken.meta) == (20, b"m2")


def test_what_a_failed_flush_gives_back_never_overtakes_what_came_meanwhile() -> None:
    kept = Unflushed(0, b"")
    kept.add({b"a": Changed(None, _row(1, MINUTE)), b"b": Changed(None, _row(1))}, 10, b"")
    failed = kept.take()
    kept.add({b"a": Changed(_row(1, MINUTE), _row(2, 2 * MINUTE))}, 20, b"")
    kept.give_back(failed)
    assert _written(kept.take()) == {b"a": (20, _row(2, 2 * MINUTE), None, 2), b"b": (10, _row(1), None, None)}


def test_the_size_is_that_of_what_waits() -> None:
    kept = Unflushed(0, b"")
    grown = kept.add({b"a": Changed(None, _row(1)), b"b": Changed(None, _row(1))}, 10, b"")
    assert kept.size_bytes == grown > len(_row(1)) * 2
    assert kept.add({b"a": Changed(_row(1), _row(2))}, 11, b"") == 0
    taken = kept.take()
    assert (taken.size_bytes, kept.size_bytes) == (grown, 0)
    kept.give_back(taken)
    assert kept.size_bytes == grown


def test_after_a_loss_only_the_position_is_kept_until_it_follows_again() -> None:
    kept = Unflushed(0, b"")
    kept.add({b"a": Changed(None, _row(1))}, 10, b"m1")
    taken = kept.take()
    kept.lose()
    kept.give_back(taken)
    kept.add({b"b": Changed(None, _row(1))}, 20, b"m2")
    assert (len(kept), kept.size_bytes, kept.position, kept.meta) == (0, 0, 20, b"m2")
    kept.follow()
    kept.add({b"c": Changed(None, _row(1))}, 30, b"m3")
    assert list(_written(kept.take())) == [b"c"]
