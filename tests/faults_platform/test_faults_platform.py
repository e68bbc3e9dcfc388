"""A short run: the longer one is `make faults-platform`. What it prints repeats it."""

import random
import sys
from pathlib import Path

import pytest

from tests.faults_platform.processes import Durations
from tests.faults_platform.run import Scale, run, table
from tests.faults_platform.schedule import Fault

FAULTS = (
    Fault("kill", ("ingest", "kafka")),
    Fault("slow", ("normalizer-0", "projector-0")),
    Fault("kill", ("api", "delivery-0", "segmenter-0", "projector-0")),
)


@pytest.mark.timeout(600)
def test_nothing_is_lost_doubled_or_wrong_on_the_whole_platform(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    with capsys.disabled():
        sys.stderr.write(f"\nfaults-platform: seed {seed}\n")
    scale = Scale(rate=40, users=20, spark=False, durations=Durations(slow_seconds=4.0))
    report = run(tmp_path, seed, scale, FAULTS, seconds=600)
    assert report.verdict.good, table(report)
    assert [one.never for one in report.injected] == [[], [], []], table(report)
    assert report.verdict.counts["feed records"] > 100
