"""The evaluation of a run: what is counted as a failure, and that a seed repeats an input."""

import json
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.bystander import Measured, measured
from tests.fuzz.in_process import DOORS
from tests.fuzz.probe import Sample
from tests.fuzz.run import Report, changed
from tests.fuzz.tally import Account, Attack, Defect, Input, dice_of, table


class Planted:
    """A door whose every third input is refused, every fifth a defect, every seventh lost."""

    name = "planted"
    pace = 1e9

    def make(self, dice: random.Random) -> Input:
        return {"bytes": dice.randbytes(3)}

    def send(self, given: Input, number: int) -> bool:
        if number % 5 == 4:
            raise Defect("it answered 500")
        return number % 3 != 2

    def account(self) -> Account:
        return Account(dead_letters=2, lost=[(6, "no trace of it")])


def attacked(directory: Path) -> Attack:
    attack = Attack(Planted(), 7, directory)
    # An attack lowers the priority of its thread, which would be that of all tests which follow here.
    running = threading.Thread(target=attack.run, args=(time.monotonic() + 60, 10))
    running.start()
    running.join()
    attack.close_account()
    return attack


def test_every_input_is_counted_once_and_defects_and_losses_are_failures(tmp_path: Path) -> None:
    tally = attacked(tmp_path).tally
    assert (tally.inputs, tally.refused, tally.accepted, tally.dead_letters, tally.failures) == (10, 3, 5, 2, 3)
    assert "| planted | 10 | 3 | 2 | 5 | 3 |" in table([tally])
    assert not Report(7, 1, [tally]).good


def test_a_failing_input_is_saved_and_its_seed_and_number_repeat_it(tmp_path: Path) -> None:
    attacked(tmp_path)
    saved = json.loads((tmp_path / "planted-7-4.json").read_text())
    assert (saved["door"], saved["number"], saved["reason"]) == ("planted", 4, "it answered 500")
    assert (
        Planted().make(dice_of(7, "planted", 4))
        == Planted().make(dice_of(7, "planted", 4))
        != Planted().make(dice_of(8, "planted", 4))
    )
    assert saved["input"]["bytes"].keys() == {"base64"}


def test_a_process_that_was_restarted_or_ended_is_a_failure() -> None:
    before: dict[str, tuple[int | None, int]] = {"api": (10, 0), "ingest": (11, 0)}
    assert changed(before, before) == []
    assert len(changed(before, {"api": (12, 1), "ingest": (None, 0)})) == 2


@pytest.mark.parametrize(
    ("p50", "p99", "exceeds"),
    [(200.0, 240.0, False), (300.0, 350.0, True), (200.0, 900.0, True), (200.0, float("inf"), True), (200.0, 590.0, False)],
)
def test_an_attack_may_double_the_quiet_latency_or_stay_below_the_floor(p50: float, p99: float, *, exceeds: bool) -> None:
    quiet = Measured("quiet", 100, 40.0, 300.0, 1.0)
    assert Measured("attack", 100, p50, p99, 1.0).exceeds(quiet) is exceeds


def test_a_change_that_never_came_counts_as_endless() -> None:
    samples = [Sample(float(number), 10.0, 0.0) for number in range(50)] + [Sample(50.0, None, 0.0)]
    assert measured("attack", samples).p99 == float("inf")


@pytest.mark.parametrize("name", DOORS)
def test_the_inputs_of_a_door_depend_on_the_dice_alone(name: str) -> None:
    one, other = DOORS[name](), DOORS[name]()
    for number in range(50):
        first: Any = one.make(dice_of(1, name, number))
        assert repr(first) == repr(other.make(dice_of(1, name, number)))
