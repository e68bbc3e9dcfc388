"""Workers of two releases take over from each other: the changes and states are those of one worker."""

from dataclasses import replace
from typing import Any

import pytest

from starling_segmenter.agents import describe
from starling_segments import FORMAT, FORMAT_BEFORE, plain
from starling_stream.model.errors import StateUnreadable
from tests.unit.segmenter.release_before import release_before
from tests.unit.segmenter.segmenting import MemorySegmenter

HOUR_MS = 3_600_000
BUY: dict[str, Any] = {"event": "Buy"}
SEGMENTS: dict[str, dict[str, Any]] = {
    "thrice": {**BUY, "op": "gte", "value": 3},
    "lately": {**BUY, "within": "5h"},
    "rich": {**BUY, "measure": {"sum": "price"}, "op": "gt", "value": 100, "within": "1d"},
    "many-items": {**BUY, "measure": {"distinct": "item"}, "op": "gte", "value": 30},
    "paid": {"sequence": [BUY, {"event": "Pay"}], "within": "2d"},
    "pro": {"trait": "plan", "op": "eq", "value": "pro", "held_for": "3h"},
}


def _defined() -> MemorySegmenter:
    segmenter = MemorySegmenter()
    for key, where in SEGMENTS.items():
        segmenter.define(key, where)
    return segmenter


def _story(segmenter: MemorySegmenter, hour: int) -> None:
    """Send the records of one hour; users get more than 255 bytes of distinct items."""
    at_ms = hour * HOUR_MS
    for user in ("ada", "bob", "eve"):
        if (hour + ord(user[0])) % 3:
            segmenter.track(user, "Buy", at_ms, {"price": hour * 7 % 50, "item": f"item-{hour}-{user}"})
        if hour % 4 == 1:
            segmenter.track(user, "Pay", at_ms + 1_000)
    segmenter.identify("ada", {"plan": "pro" if hour % 10 < 6 else "free"}, at_ms + 2_000)


def _take_over(segmenter: MemorySegmenter, state_format: int, *, older: bool = False) -> None:
    """Continue in another process, which writes that format."""
    segmenter.state_format = state_format
    service = describe(segmenter._processor())
    if older:
        service = replace(service, processor=release_before(service.processor))
    written, segmenter.task = segmenter.task.outputs, segmenter.task.restart(service)
    segmenter.task.outputs = written


def _formats(segmenter: MemorySegmenter) -> set[int]:
    """Return the formats of the stored states."""
    return {row[16] for row in segmenter.task._rows.stored.values() if len(row) > 16}


def _states(segmenter: MemorySegmenter) -> dict[bytes, dict[str, Any]]:
    return {key: plain(state) for key, state in segmenter.user_states().items()}


def test_rolling_back_and_forth_changes_nothing() -> None:
    alone, rolled = _defined(), _defined()
    formats: set[int] = set()
    for hour in range(1, 61):
        _take_over(rolled, FORMAT_BEFORE if hour % 2 else FORMAT)
        _story(rolled, hour)
        _story(alone, hour)
        formats |= _formats(rolled)
    assert formats == {FORMAT_BEFORE, FORMAT}
    changes = rolled.changes()
    assert changes == alone.changes()
    assert {change.segment for change in changes} == set(SEGMENTS)
    assert _states(rolled) == _states(alone)


def test_the_release_before_takes_over_until_the_newest_format_is_switched_on() -> None:
    alone, rolled = _defined(), _defined()
    for hour in range(1, 31):
        _take_over(rolled, FORMAT_BEFORE, older=hour % 2 == 1)
        _story(rolled, hour)
        _story(alone, hour)
    assert _formats(rolled) == {FORMAT_BEFORE}
    assert rolled.changes() == alone.changes()
    assert _states(rolled) == _states(alone)

    _take_over(rolled, FORMAT)
    _story(rolled, 31)
    _take_over(rolled, FORMAT_BEFORE, older=True)
    with pytest.raises(StateUnreadable, match=f"state format {FORMAT:02x}, expected at most {FORMAT_BEFORE:02x}"):
        _story(rolled, 32)


def test_a_format_that_this_version_cannot_write_ends_the_start() -> None:
    segmenter = MemorySegmenter()
    segmenter.state_format = FORMAT + 1
    with pytest.raises(ValueError, match=f"this version writes the formats {FORMAT_BEFORE} and {FORMAT}"):
        segmenter.restart()
