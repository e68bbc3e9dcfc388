"""What a task is restored from, case by case."""

import pytest

from starling_stream.model.backing_store import Standing
from starling_stream.state.restore_point import Base, Choice, OnDisk, Span, choose_base

SPAN = Span(0, 10_000)
BOUND = 1_000


def _standing(floor: int | None, incarnation: int = 0) -> Standing:
    return Standing(incarnation, floor, b"", 0)


def _disk(position: int, incarnation: int | None = 0, *, cold: bool = False) -> OnDisk:
    return OnDisk(position, incarnation, cold)


CASES = {
    "nothing anywhere: the whole log, which then is all that the tier lacks": (None, _standing(None), Choice(Base.LOG, 0, 0, 0)),
    "a lost disk: the tier, and the tail": (None, _standing(9_900), Choice(Base.TIER, 9_900, 9_900, 0)),
    "the disk is ahead of the floor: read from the floor": (
        _disk(9_990),
        _standing(9_900),
        Choice(Base.DISK, 9_900, 9_900, 0),
    ),
    "the floor is ahead of the disk, a little": (_disk(9_000), _standing(9_900), Choice(Base.DISK, 9_000, 9_900, 0)),
    "the floor is far ahead of the disk": (_disk(100), _standing(9_900), Choice(Base.TIER, 9_900, 9_900, 0)),
    "the floor is far behind the disk: it is filled from there": (_disk(9_990), _standing(100), Choice(Base.DISK, 9_990, None, 0)),
    "the tier is empty: it is filled from the disk": (_disk(9_990), _standing(None), Choice(Base.DISK, 9_990, None, 0)),
    "the tier is away, the disk is whole": (_disk(9_990), None, Choice(Base.DISK, 9_990, None, 0)),
    "the tier is away, the disk has only some users": (_disk(9_990, cold=True), None, Choice(Base.LOG, 0, 0, None)),
    "the tier is away, and no disk": (None, None, Choice(Base.LOG, 0, 0, None)),
    "the disk has only some users, the rest is in the tier": (
        _disk(9_990, cold=True),
        _standing(9_980),
        Choice(Base.DISK, 9_980, 9_980, 0),
    ),
    "the disk has only some users, and the tier lost its floor": (
        _disk(9_990, cold=True),
        _standing(None),
        Choice(Base.LOG, 0, 0, 0),
    ),
    "the disk is beyond the log's end": (_disk(10_001), _standing(9_900), Choice(Base.TIER, 9_900, 9_900, 0)),
    "the floor is beyond the log's end: neither it nor the disk is trusted": (
        _disk(5_000),
        _standing(10_001, 3),
        Choice(Base.LOG, 0, 0, 4, begin=True),
    ),
    "somebody began an incarnation: the disk is of the one before": (
        _disk(9_990, 0),
        _standing(None, 1),
        Choice(Base.LOG, 0, 0, 1),
    ),
    "the tier lost its tables": (_disk(9_990, 2), _standing(None, 0), Choice(Base.DISK, 9_990, None, 3, begin=True)),
    "the disk never met the tier": (_disk(9_990, None), _standing(9_900, 2), Choice(Base.DISK, 9_900, 9_900, 2)),
}


@pytest.mark.parametrize("case", CASES)
def test_the_quickest_base_that_can_be_trusted(case: str) -> None:
    disk, standing, expected = CASES[case]
    assert choose_base(disk, standing, SPAN, BOUND) == expected


def test_a_floor_before_the_logs_start_is_not_trusted_but_the_disk_is() -> None:
    span = Span(9_950, 10_000)
    assert choose_base(None, _standing(9_900), span, BOUND) == Choice(Base.LOG, 9_950, 9_950, 1, begin=True)
    assert choose_base(_disk(9_990), _standing(9_900), span, BOUND) == Choice(Base.DISK, 9_990, None, 1, begin=True)


def test_a_small_log_is_read_whole_rather_than_users_left_cold() -> None:
    assert choose_base(None, _standing(900), Span(0, 1_000), BOUND) == Choice(Base.LOG, 0, 900, 0)
