"""A short fault run with a choice of its own each time; what it prints repeats it: `python -m tests.faults.run --seed N`."""

import random
import sys
from pathlib import Path

import pytest

from tests.faults.run import available, run, table
from tests.faults.world import Scale

LONG = {
    "ten rebalances", "broker stopped", "broker killed", "cassandra stopped", "cassandra times out", "rebalance during restore",
}  # fmt: skip
"""What is too long for a short run. After a kill of the broker, a call of librdkafka may hang and end a worker seconds later, when
a short run is over already."""


def test_nothing_is_lost_doubled_or_wrong_over_some_faults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    with capsys.disabled():
        sys.stderr.write(f"\nfaults: seed {seed}\n")
    faults = [fault for fault in available() if fault.name not in LONG]
    # The run ends with the third fault. A failpoint that no worker reaches costs a quarter of a minute.
    report = run(tmp_path, seed, Scale(workers=2, rate=150, users=100, outage_seconds=5.0), faults, seconds=90, count=3)
    assert report.findings.good, table(report)
    assert report.count >= 2, table(report)
    assert report.findings.counts["feed records"] > 100
