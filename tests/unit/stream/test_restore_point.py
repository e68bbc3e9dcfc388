"""The base of a restore, case by case."""

import pytest

from starling_stream.model.backing_store import Checkpoint
from starling_stream.state.restore.restore_point import Base, Choice, OnDisk, Span, choose_base

SPAN = Span(0, 10_000)
BOUND = 1_000


def _checkpoint(flushed_offset: int | None, incarnation: int = 0) -> Checkpoint:
    return Checkpoint(incarnation, flushed_offset, b"", 0)


def _disk(position: int, incarnation: int | None = 0, *, is_partial: bool = False) -> OnDisk:
    return OnDisk(position, incarnation, is_partial)


CASES = {
    "no state anywhere: the whole log, which is all that is unflushed": (None, _checkpoint(None), Choice(Base.LOG, 0, 0, 0)),
    "a lost local store: the backing store, and the tail": (None, _checkpoint(9_900), Choice(Base.BACKING_STORE, 9_900, 9_900, 0)),
    "the local store is after the flushed offset: replay from the flushed offset": (
        _disk(9_990),
        _checkpoint(9_900),
        Choice(Base.DISK, 9_900, 9_900, 0),
    ),
    "the flushed offset is a little after the local store": (_disk(9_000), _checkpoint(9_900), Choice(Base.DISK, 9_000, 9_900, 0)),
    "the flushed offset is far after the local store": (
        _disk(100),
        _checkpoint(9_900),
        Choice(Base.BACKING_STORE, 9_900, 9_900, 0),
    ),
    "the flushed offset is far before the local store: fill": (_disk(9_990), _checkpoint(100), Choice(Base.DISK, 9_990, None, 0)),
    "the backing store is empty: fill": (_disk(9_990), _checkpoint(None), Choice(Base.DISK, 9_990, None, 0)),
    "the backing store is unavailable, the local store is complete": (_disk(9_990), None, Choice(Base.DISK, 9_990, None, 0)),
    "the backing store is unavailable, the local store is partial": (
        _disk(9_990, is_partial=True),
        None,
        Choice(Base.LOG, 0, 0, None),
    ),
    "the backing store is unavailable, no local store": (None, None, Choice(Base.LOG, 0, 0, None)),
    "the local store is partial, the backing store has the other users": (
        _disk(9_990, is_partial=True),
        _checkpoint(9_980),
        Choice(Base.DISK, 9_980, 9_980, 0),
    ),
    "the local store is partial, and the backing store is incomplete": (
        _disk(9_990, is_partial=True),
        _checkpoint(None),
        Choice(Base.LOG, 0, 0, 0),
    ),
    "the local store is after the log's end": (_disk(10_001), _checkpoint(9_900), Choice(Base.BACKING_STORE, 9_900, 9_900, 0)),
    "the flushed offset is after the log's end: nothing is trusted": (
        _disk(5_000),
        _checkpoint(10_001, 3),
        Choice(Base.LOG, 0, 0, 4, begin=True),
    ),
    "an operator created an incarnation: the local store is obsolete": (
        _disk(9_990, 0),
        _checkpoint(None, 1),
        Choice(Base.LOG, 0, 0, 1),
    ),
    "the backing store lost its tables": (_disk(9_990, 2), _checkpoint(None, 0), Choice(Base.DISK, 9_990, None, 3, begin=True)),
    "the local store never had a backing store": (_disk(9_990, None), _checkpoint(9_900, 2), Choice(Base.DISK, 9_900, 9_900, 2)),
}


@pytest.mark.parametrize("case", CASES)
def test_the_quickest_base_that_can_be_trusted(case: str) -> None:
    disk, checkpoint, expected = CASES[case]
    assert choose_base(disk, checkpoint, SPAN, BOUND) == expected


def test_a_flushed_offset_before_the_logs_start_is_not_trusted_but_the_local_store_is() -> None:
    span = Span(9_950, 10_000)
    assert choose_base(None, _checkpoint(9_900), span, BOUND) == Choice(Base.LOG, 9_950, 9_950, 1, begin=True)
    assert choose_base(_disk(9_990), _checkpoint(9_900), span, BOUND) == Choice(Base.DISK, 9_990, None, 1, begin=True)


def test_a_small_log_is_replayed_instead_of_a_lazy_restore() -> None:
    assert choose_base(None, _checkpoint(900), Span(0, 1_000), BOUND) == Choice(Base.LOG, 0, 900, 0)
