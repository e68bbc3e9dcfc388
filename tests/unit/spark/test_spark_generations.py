"""Which checkpoint publishes under which definitions: after a kill at any moment it is exactly one."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from starling_spark.directories import LocalDirectory
from starling_spark.jobs.profiles.query.generations import Generation, Generations, TakenOver
from tests.unit.spark.keeping import ORDERS, defined

LAYOUT = "layout"
NOW_MS = 1_767_225_600_000
OLD = (defined("m", ORDERS), defined("n", ORDERS))
NEW = (defined("k", ORDERS), defined("m", ORDERS), defined("n", {"event": "Refund"}, ORDERS))


@pytest.fixture
def generations(tmp_path: Path) -> Generations:
    """`old` publishes."""
    made = Generations(LocalDirectory(tmp_path))
    made.complete(made.open("old", LAYOUT, OLD))
    return made


def in_force(generations: Generations) -> Generation:
    found = generations.in_force(LAYOUT)
    assert found is not None
    return found


def committed(generation: Generation, offset: int, files: int) -> None:
    """Write what Spark writes of a completed micro-batch."""
    for name in ("commits", "offsets"):
        (generation.directory / name).make()
    lines = ["v1", "{}", json.dumps({"events": {"0": offset}}), json.dumps({"logOffset": files - 1})]
    (generation.directory / "offsets").write("7", "\n".join(lines))
    (generation.directory / "commits").write("7", "v1\n{}")


def test_without_a_checkpoint_none_is_in_force(tmp_path: Path) -> None:
    assert Generations(LocalDirectory(tmp_path / "missing")).in_force(LAYOUT) is None


def test_a_step_keeps_the_checkpoint_and_begins_at_its_offsets(generations: Generations) -> None:
    former = in_force(generations)
    committed(former, 40, 3)
    generations.change(former, NEW, users=500)
    found = in_force(generations)
    assert (found.name, found.definitions, found.is_complete) == ("old", NEW, False)
    assert (found.step.number, found.step.offsets(), found.step.files, found.step.users) == (2, {("events", 0): 40}, 3, 500)
    spans = [(one.definition.key, one.definition.version, one.since, one.until) for one in found.entries]
    assert spans == [("m", 1, 1, None), ("n", 1, 1, 2), ("k", 1, 2, None), ("n", 2, 2, None)]


def test_a_release_before_steps_does_not_take_a_state_with_steps_for_its_own(generations: Generations, tmp_path: Path) -> None:
    def found() -> dict[str, Any]:
        text: dict[str, Any] = json.loads((tmp_path / "old" / "definitions.json").read_text())
        return text

    assert [one["key"] for one in found()["definitions"]] == ["m", "n"]
    assert found()["layout"] != LAYOUT
    generations.change(in_force(generations), NEW, users=0)
    assert found()["layout"] != LAYOUT
    assert in_force(generations).layout == LAYOUT


def test_a_complete_step_has_no_files_left(generations: Generations) -> None:
    changed = generations.change(in_force(generations), NEW, users=0)
    changed.visit_files.write("part-0", "seeds 0 AA==")
    assert not changed.has_read_history
    changed.note_history_read()
    assert in_force(generations).has_read_history
    generations.complete(changed)
    assert in_force(generations).is_complete
    assert changed.visit_files.names() == []
    (changed.visit_files / "_temporary" / "0").make()
    for name in ("part-0", ".part-0.crc"):
        changed.visit_files.write(name, "left by a process that was killed")
    later = generations.change(in_force(generations), OLD, users=0)
    assert changed.visit_files.names() == []
    assert (later.step.number, later.definitions, later.is_complete, later.has_read_history) == (3, OLD, False, False)


def test_a_query_without_a_completed_micro_batch_has_everything_after_the_cut(generations: Generations) -> None:
    assert generations.change(in_force(generations), NEW, users=0).step.offsets() == {}


def test_a_checkpoint_of_another_layout_or_release_is_not_in_force(generations: Generations, tmp_path: Path) -> None:
    assert generations.in_force("another") is None
    (tmp_path / "of-0.1.0" / "offsets").mkdir(parents=True)
    generations.complete(in_force(generations))
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_a_new_generation_does_not_read_a_state_of_the_same_name(generations: Generations) -> None:
    committed(in_force(generations), 40, 0)
    opened = generations.open("old", LAYOUT, OLD)
    assert not (opened.directory / "commits").exists()
    assert not opened.is_complete


def test_each_driver_has_a_higher_epoch_also_when_the_wall_clock_goes_back(generations: Generations) -> None:
    assert in_force(generations).epoch == 0
    epochs = [
        generations.take_over(in_force(generations), now_ms).epoch for now_ms in (NOW_MS, NOW_MS, NOW_MS - 60_000, NOW_MS + 9_000)
    ]
    assert epochs == [1_767_225_600, 1_767_225_601, 1_767_225_602, 1_767_225_609]
    assert in_force(generations).epoch == epochs[-1]


def test_a_driver_notices_that_it_was_replaced(generations: Generations) -> None:
    former = generations.take_over(in_force(generations), NOW_MS)
    generations.check(former)
    second = generations.take_over(in_force(generations), NOW_MS)
    with pytest.raises(TakenOver, match=r"epoch 1767225601, here 1767225600"):
        generations.check(former)
    generations.check(second)


def release_before(directory: LocalDirectory, *, number: int, visits: int, complete: bool) -> None:
    """Write the files of a release that read the history again at each change of the definitions."""
    directory.make()
    directory.write("definitions.json", json.dumps({"layout": LAYOUT, "definitions": [asdict(one) for one in OLD]}))
    directory.write("live.json", json.dumps({"number": number, "visits": visits, "changed": [["w", "n"]], "epoch": 5}))
    if complete:
        directory.write("complete", "")


def test_the_checkpoint_of_the_former_release_goes_on(tmp_path: Path) -> None:
    release_before(LocalDirectory(tmp_path / "old"), number=2, visits=3, complete=True)
    generations = Generations(LocalDirectory(tmp_path))
    taken = generations.take_over(in_force(generations), NOW_MS)
    assert (taken.name, taken.number, taken.definitions, taken.is_complete, taken.epoch) == ("old", 2, OLD, True, NOW_MS // 1000)
    again = in_force(generations)
    assert (again.is_complete, again.number) == (True, 2)


def test_a_handover_of_the_former_release_that_did_not_end_is_not_in_force(tmp_path: Path) -> None:
    release_before(LocalDirectory(tmp_path / "old"), number=1, visits=0, complete=True)
    release_before(LocalDirectory(tmp_path / "newer"), number=2, visits=3, complete=False)
    assert in_force(Generations(LocalDirectory(tmp_path))).name == "old"


def test_the_checkpoint_of_a_release_without_epochs_goes_on(tmp_path: Path) -> None:
    directory = LocalDirectory(tmp_path / "old")
    release_before(directory, number=1, visits=0, complete=True)
    directory.write("live.json", '{"number": 1, "visits": 0, "changed": []}')
    generations = Generations(LocalDirectory(tmp_path))
    assert generations.take_over(in_force(generations), NOW_MS).epoch == NOW_MS // 1000
