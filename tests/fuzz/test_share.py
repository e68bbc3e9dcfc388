"""Six seconds of `make fuzz`: every input is accounted for, and no process ends. Only the whole run looks for stalls."""

from pathlib import Path

from tests.fuzz.run import attack_all
from tests.fuzz.world import running

SEED = 1
"""Equal seeds give equal inputs. `make fuzz FUZZ_SEED=…` looks for new ones."""


def test_generated_input_at_every_door_is_accounted_for(tmp_path: Path) -> None:
    with running(tmp_path / "instance", with_spark=False) as world:
        report = attack_all(world, SEED, 6, tmp_path, in_process=("chain", "rules", "texts"), stalls=False)
    assert report.good, str(report)
    assert all(tally.inputs for tally in report.tallies), str(report)
