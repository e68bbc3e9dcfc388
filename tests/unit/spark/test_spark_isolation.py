"""Folds in which a record that makes the code raise changes nothing, and checkpoints that are moved."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starling_common.outcome import Refused
from starling_spark import isolation
from starling_spark.directories import LocalDirectory
from starling_spark.isolation import IsolatedFold
from starling_spark.kafka.checkpoints import checkpoints
from starling_spark.lost_input import chosen


def _sums(raises: set[int], *, once: bool = False) -> Any:
    """Return a fold that changes the state before it raises for these records. `once`: for each of them only the first time."""
    raised: set[int] = set()

    def fold(state: dict[str, int], record: tuple[int, int]) -> int:
        number, amount = record
        state["sum"] = state.get("sum", 0) * 3 + amount
        if number in raises and not (once and number in raised):
            raised.add(number)
            raise RecursionError("too deep")
        return state["sum"]

    return fold


@settings(max_examples=200, deadline=None)
@given(amounts=st.lists(st.integers(-9, 9), max_size=40), most=st.integers(1, 6), data=st.data())
def test_whatever_records_raise_the_results_of_all_others_are_as_without_them(
    amounts: list[int], most: int, data: st.DataObject
) -> None:
    raises = data.draw(st.sets(st.sampled_from(range(len(amounts))))) if amounts else set()
    records = list(enumerate(amounts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(isolation, "_MOST", most)
        fold: IsolatedFold[dict[str, int], tuple[int, int], int] = IsolatedFold(dict, _sums(raises), copy.copy)
        results = [fold.take(record) for record in records]
    without: dict[str, int] = {}
    add = _sums(set())
    expected = [None if number in raises else add(without, (number, amount)) for number, amount in records]
    assert [None if isinstance(one, Refused) else one for one in results] == expected
    assert {one.code for one in results if isinstance(one, Refused)} <= {"poison"}
    assert fold.state == without


def test_a_record_that_raises_once_is_folded() -> None:
    fold: IsolatedFold[dict[str, int], tuple[int, int], int] = IsolatedFold(dict, _sums({1}, once=True), copy.copy)
    assert [fold.take((number, 1)) for number in range(3)] == [1, 4, 13]


def test_a_failure_of_the_installation_refuses_nothing() -> None:
    def away(_state: dict[str, int], _record: int) -> None:
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space left"):
        IsolatedFold(dict, away, copy.copy).take(1)


def test_a_state_that_cannot_be_copied_is_folded_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def uncopied(state: dict[str, int]) -> dict[str, int]:
        raise OverflowError("too large")

    monkeypatch.setattr(isolation, "_MOST", 2)
    fold: IsolatedFold[dict[str, int], tuple[int, int], int] = IsolatedFold(dict, _sums({5}), uncopied)
    results = [fold.take((number, 1)) for number in range(7)]
    assert [isinstance(one, Refused) for one in results] == [False] * 5 + [True, False]
    assert results[6] == 364


def _checkpoint(directory: Path, planned: int, committed: int) -> None:
    for name in ("offsets", "commits"):
        (directory / name).mkdir(parents=True)
    for number in range(planned + 1):
        offsets = json.dumps({"t": {"0": 10 * (number + 1), "1": 3}})
        (directory / "offsets" / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0,"conf":{{"a.b":"c"}}}}\n{offsets}\n17')
        (directory / "offsets" / f".{number}.crc").write_text("sum")
    for number in range(committed + 1):
        (directory / "commits" / str(number)).write_text("v1\n{}")


def test_a_moved_checkpoint_continues_after_its_last_completed_batch(tmp_path: Path) -> None:
    _checkpoint(tmp_path / "views" / "sales-v1", planned=2, committed=1)
    [found] = checkpoints(LocalDirectory(tmp_path), "views")
    assert found.offsets() == {("t", 0): 20, ("t", 1): 3}
    found.move(lambda place, offset: 25 if place == ("t", 0) else offset)
    assert found.offsets() == {("t", 0): 25, ("t", 1): 3}
    names = set((found.directory / "offsets").names())
    assert names == {"0", ".0.crc", "1"}, "the planned batch is planned again, and no checksum is of another text"
    lines = ((found.directory / "offsets").read("1") or "").split("\n")
    assert lines == ["v1", '{"batchWatermarkMs":0,"conf":{"a.b":"c"}}', '{"t":{"0":25,"1":3}}', "17"]


def test_a_checkpoint_without_a_completed_batch_begins_again(tmp_path: Path) -> None:
    _checkpoint(tmp_path / "lake-2", planned=0, committed=-1)
    [found] = checkpoints(LocalDirectory(tmp_path), "lake")
    assert found.offsets() == {}
    found.move(lambda _place, offset: offset)
    assert not found.directory.exists()


@pytest.mark.parametrize(("offset", "expected"), [(4, 5), (5, 5), (9, 9), (10, 5)])
def test_a_job_continues_at_the_start_of_a_topic_that_its_offset_lies_outside(offset: int, expected: int) -> None:
    assert chosen(offset, (5, 9)) == expected
