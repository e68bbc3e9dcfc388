"""Which checkpoint publishes: after a kill at any moment it is exactly one."""

from pathlib import Path

import pytest

from starling_spark.directories import LocalDirectory
from starling_spark.jobs.profiles.query.generations import Generation, Generations, TakenOver
from tests.unit.spark.keeping import ORDERS, defined

LAYOUT = "layout"
NOW_MS = 1_767_225_600_000
OLD = (defined("n", ORDERS), defined("m", ORDERS))
NEW = (defined("n", {"event": "Refund"}, ORDERS), defined("m", ORDERS), defined("k", ORDERS))


@pytest.fixture
def generations(tmp_path: Path) -> Generations:
    """`old` publishes."""
    made = Generations(LocalDirectory(tmp_path))
    made.complete(made.open("old", LAYOUT, OLD, live=True))
    return made


def test_without_a_checkpoint_none_is_in_force(tmp_path: Path) -> None:
    assert Generations(LocalDirectory(tmp_path / "missing")).in_force(LAYOUT) is None


def test_the_former_one_is_in_force_until_the_newer_one_is_live(generations: Generations, tmp_path: Path) -> None:
    newer = generations.open("new", LAYOUT, NEW, live=False)
    found = generations.in_force(LAYOUT)
    assert found is not None
    assert (found.name, found.definitions, found.is_complete, found.visits) == ("old", OLD, True, 0)
    generations.make_live(newer, found, 3)
    found = generations.in_force(LAYOUT)
    assert found is not None
    assert (found.name, found.definitions, found.is_complete, found.visits) == ("new", NEW, False, 3)
    assert found.changed == {("w", "n"), ("w", "k")}
    assert [found.visit_files.read(name) for name in found.visit_files.names()] == ["3", "3", "3"]
    generations.complete(found)
    assert LocalDirectory(tmp_path).names() == ["new"]


def test_the_files_of_a_handover_that_was_killed_are_deleted(generations: Generations) -> None:
    newer = generations.open("new", LAYOUT, NEW, live=False)
    newer.visit_files.write("000000", "3")
    again = generations.open("new", LAYOUT, NEW, live=False)
    assert again.visit_files.names() == []


def test_a_checkpoint_of_another_layout_or_release_is_not_in_force(generations: Generations, tmp_path: Path) -> None:
    assert generations.in_force("another") is None
    (tmp_path / "of-0.1.0" / "offsets").mkdir(parents=True)
    found = generations.in_force(LAYOUT)
    assert found is not None
    generations.delete_others(found.name)
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_the_state_of_a_silent_query_is_not_read_without_the_former_one(tmp_path: Path) -> None:
    made = Generations(LocalDirectory(tmp_path))
    silent = made.open("new", LAYOUT, NEW, live=False)
    (silent.directory / "commits").make()
    (silent.directory / "commits").write("0", "")
    assert not (made.open("new", LAYOUT, NEW, live=True).directory / "commits").exists()


def in_force(generations: Generations) -> Generation:
    found = generations.in_force(LAYOUT)
    assert found is not None
    return found


def test_each_driver_has_a_higher_epoch_also_when_the_wall_clock_goes_back(generations: Generations) -> None:
    assert in_force(generations).epoch == 0
    epochs = [
        generations.take_over(in_force(generations), now_ms).epoch for now_ms in (NOW_MS, NOW_MS, NOW_MS - 60_000, NOW_MS + 9_000)
    ]
    assert epochs == [1_767_225_600, 1_767_225_601, 1_767_225_602, 1_767_225_609]
    assert in_force(generations).epoch == epochs[-1]


def test_the_query_that_takes_over_has_a_higher_epoch_than_the_former_one(generations: Generations) -> None:
    former = generations.take_over(in_force(generations), NOW_MS)
    generations.make_live(generations.open("new", LAYOUT, NEW, live=False), former, 3)
    newer = generations.take_over(in_force(generations), NOW_MS - 60_000)
    changed = frozenset({("w", "n"), ("w", "k")})
    assert (newer.name, newer.visits, newer.changed, newer.epoch) == ("new", 3, changed, former.epoch + 1)
    assert (in_force(generations).name, in_force(generations).epoch) == ("new", newer.epoch)


def test_a_driver_notices_that_it_was_replaced(generations: Generations) -> None:
    former = generations.take_over(in_force(generations), NOW_MS)
    generations.check(former)
    second = generations.take_over(in_force(generations), NOW_MS)
    with pytest.raises(TakenOver, match=r"epoch 1767225601, here 1767225600"):
        generations.check(former)
    generations.check(second)
    generations.make_live(generations.open("new", LAYOUT, NEW, live=False), second, 3)
    generations.complete(generations.take_over(in_force(generations), NOW_MS))
    with pytest.raises(TakenOver):
        generations.check(second)


def test_the_checkpoint_of_a_release_without_epochs_goes_on(generations: Generations, tmp_path: Path) -> None:
    live = LocalDirectory(tmp_path / "old")
    live.write("live.json", '{"number": 1, "visits": 0, "changed": []}')
    taken = generations.take_over(in_force(generations), NOW_MS)
    assert (taken.name, taken.number, taken.is_complete, taken.epoch) == ("old", 1, True, NOW_MS // 1000)
