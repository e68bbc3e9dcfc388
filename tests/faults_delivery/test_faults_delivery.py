"""A short run: the longer one is `make faults-delivery`. What it prints repeats it."""

import random
import sys
from pathlib import Path

import pytest

from tests.faults_delivery.run import Scale, run, waves_of
from tests.faults_platform.report import Checkpoint, table
from tests.faults_platform.schedule import Fault, Wave

WAVES = (
    Wave(Fault("kill", ("delivery-email-0", "messenger-0"))),
    Wave(Fault("kill", ("broadcaster", "kafka"))),
    Wave(Fault("slow", ("messenger-0",)), (Fault("kill", ("delivery-email-0",)), Fault("kill", ("segmenter-0",)))),
    Wave(Fault("kill", ("broadcaster",)), (Fault("kill", ("messenger-0",)), Fault("kill", ("delivery-email-0",)))),
    Wave(Fault("kill", ("messenger-0",))),
    Wave(Fault("kill", ("tracker",))),
)


def test_the_seed_decides_the_faults() -> None:
    assert waves_of(1, 110) == waves_of(1, 110) != waves_of(2, 110)
    assert sum(len(wave.faults) for wave in waves_of(1, 110)) == 110


@pytest.mark.long
@pytest.mark.timeout(900)
def test_messages_are_exact_although_every_process_of_delivery_is_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    with capsys.disabled():
        sys.stderr.write(f"\nfaults-delivery: seed {seed}\n")
    report = run(
        tmp_path / "instance", seed, Scale(customers=600, hostile=False), WAVES, Checkpoint(tmp_path / "checkpoint"), seconds=600
    )
    # The bound of a minute is not checked: other tests run beside this one.
    assert (report.interrupted, report.findings) == (None, []), table(report)
    assert report.compared is not None
    assert report.compared.good, table(report)
    assert report.compared.counts["messages compared with pandas"] > 100
    assert report.compared.counts["messages of broadcasts"] > 100
    assert report.compared.counts["people who unsubscribed"] > 10
