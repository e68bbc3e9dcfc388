"""A short run: the longer one is `make faults-platform`. What it prints repeats it."""

import random
import sys
from pathlib import Path

import pytest

from tests.faults_platform.processes import Durations
from tests.faults_platform.report import Checkpoint, read_checkpoint, table
from tests.faults_platform.run import Scale, run
from tests.faults_platform.schedule import Fault, Wave

WAVES = (Wave(Fault("kill", ("ingest", "kafka", "api", "delivery-0", "segmenter-0")), (Fault("slow", ("projector-0",)),)),)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_nothing_is_lost_doubled_or_wrong_on_the_whole_platform(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    with capsys.disabled():
        sys.stderr.write(f"\nfaults-platform: seed {seed}\n")
    scale = Scale(rate=40, users=20, spark=False, durations=Durations(slow_seconds=4.0))
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    report = run(tmp_path / "instance", seed, scale, WAVES, checkpoint, seconds=600)
    # The bound of a minute is not checked: other tests run beside this one.
    assert (report.interrupted, report.findings) == (None, []), table(report)
    assert report.compared is not None
    assert report.compared.good, table(report)
    assert report.compared.counts["feed records"] > 100
    assert report.compared.counts["webhooks expected"] > 0
    assert table(read_checkpoint(checkpoint.file)) == table(report)
