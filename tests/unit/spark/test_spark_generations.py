"""Which checkpoint publishes: after a kill at any moment it is exactly one."""

from pathlib import Path

import pytest

from starling_spark.directories import LocalDirectory
from starling_spark.jobs.profiles.query.generations import Generations
from tests.unit.spark.keeping import ORDERS, defined

LAYOUT = "layout"
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
