"""A minute of the fuzzing of every door, and the bystander test under three attacks; `make fuzz` and `make bystander` take longer.

Both use one platform. What the run prints repeats it: `python -m tests.fuzz.run --seed N`.
"""

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz import bystander
from tests.fuzz.run import attack_all
from tests.fuzz.world import World, running


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with running(tmp_path_factory.mktemp("fuzz"), with_spark=False) as found:
        yield found


def test_a_workspace_that_behaves_well_keeps_its_latency_under_attack(world: World) -> None:
    found, wrong = bystander.compare(world, bystander.SHORT, 6)
    assert not wrong, f"{wrong}\n{bystander.table(found)}"


def test_generated_input_at_every_door_is_accounted_for_and_stops_nothing(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    with capsys.disabled():
        sys.stderr.write(f"\nfuzz: seed {seed}\n")
    report = attack_all(world, seed, 20, tmp_path, in_process=("chain", "rules", "texts"))
    assert report.good, str(report)
    assert all(tally.inputs for tally in report.tallies), str(report)
