"""A part that stays away is a finding with its log, it is started again, and the next waves go on."""

import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import psutil
import pytest

from starling_local.instance import Instance, Options, PartReport
from starling_local.stack.parts.part import Part
from tests.faults_platform.processes import Durations, Processes, restart_reasons
from tests.faults_platform.schedule import Fault, Wave


class Fake(Processes):
    """The api is a child of the test; `away`: parts that do not become ready, `lost`: not even after a restart."""

    def __init__(self, directory: Path, *, lost: bool = False, ready_seconds: float = 60.0) -> None:
        instance = Instance(directory)
        instance.logs.mkdir(parents=True)
        instance.save_options(Options(instance_id="fake", port_base=20_000, spark=False, only=("api", "ingest")))
        instance.log_file("api").write_text("the last words")
        super().__init__(
            instance, Durations(patience_seconds=0.5, gap_seconds=(0, 0), ready_seconds=ready_seconds), directory / "evidence"
        )
        self.child = subprocess.Popen(["sleep", "600"])
        self._started_at = psutil.Process(self.child.pid).create_time()
        self.away = {"api"}
        self._lost = lost

    def _reports(self) -> dict[str, PartReport]:
        api = PartReport(name="api", state="unready", pid=self.child.pid, started_at=self._started_at, last_end="failed 3 checks")
        return {name: api if name == "api" else PartReport(name=name, state="ready") for name in self.names}

    def _ready(self, parts: Mapping[str, Part]) -> list[str]:
        return [name for name in parts if name not in self.away]

    def revive(self, away: Iterable[str]) -> list[str]:
        """Bring the parts back, unless they are lost."""
        found = sorted(away)
        self.away -= set() if self._lost else set(found)
        return found if self._lost else []


def test_every_reason_of_a_restart_is_known() -> None:
    log = (
        "2026-11-25T03:24:03.595+00:00 api: answered no liveness check for 31 s; starts again in 0.5 s\n"
        "2026-11-25T03:24:04.100+00:00 api: is ready\n"
        "2026-11-25T03:24:05.000+00:00 api-2: failed 3 checks; starts again in 0.5 s\n"
        "2026-11-25T03:24:06.000+00:00 api: ended with exit code 1; starts again in 1 s\n"
    )
    assert restart_reasons(log, "api") == ["answered no liveness check for 31 s", "ended with exit code 1"]


WAVE = Wave(Fault("kill", ("api",)))


@pytest.mark.parametrize("lost", [False, True])
def test_a_part_that_stays_away_is_a_finding_and_the_waves_go_on(tmp_path: Path, lost: bool) -> None:
    processes = Fake(tmp_path, lost=lost)
    [first] = processes.inject(WAVE, 1, time.monotonic())
    assert processes.child.wait(5) == -9
    assert first.never == ["api"]
    [finding] = processes.findings
    assert "api stayed away" in finding.what
    assert "(unready  failed 3 checks)" in finding.what
    assert ("not even after a restart" if lost else "; ready after a restart") in finding.what
    assert (Path(finding.evidence) / "api.log").read_text() == "the last words"
    assert "failed 3 checks" in (Path(finding.evidence) / "state.txt").read_text()
    [second] = processes.inject(Wave(Fault("kill", ("ingest",))), 2, time.monotonic())
    assert (second.never, sorted(second.recovery_seconds)) == ([], ["ingest"])
    assert len(processes.findings) == 1


@pytest.mark.parametrize(("ready_seconds", "kept"), [(-1.0, ["00-api"]), (60.0, [])])
def test_the_log_of_a_late_part_is_kept(tmp_path: Path, ready_seconds: float, kept: list[str]) -> None:
    processes = Fake(tmp_path, ready_seconds=ready_seconds)
    processes.away.clear()
    [injected] = processes.inject(WAVE, 1, time.monotonic())
    assert processes.child.wait(5) == -9
    assert injected.never == []
    assert [place.name for place in (tmp_path / "evidence").glob("*")] == kept
    assert processes.findings == []
