"""The supervisor with parts made for it: children that outlive, refuse to end, never get ready, or hang."""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from starling_local.instance import Instance, Options, PartReport, Report
from starling_local.stack.launch import clear_orphans, stop, supervisor_of
from starling_local.stack.supervision.process import marked_processes

PATIENCE_SECONDS = 30.0

# A part that ignores TERM and has a child that does too. It writes both ids.
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", deaf])
with open(sys.argv[1] + ".new", "w") as out:
    out.write(f"{os.getpid()} {child.pid}")
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(600)
"""

SUPERVISE = """
import sys
from pathlib import Path
from starling_local.instance import Instance
from starling_local.stack.parts.part import HttpProbe, Part
from starling_local.stack.supervision.supervisor import Supervisor

home, script = Path(sys.argv[1]), sys.argv[2]
stubborn = Part(
    name="stubborn",
    command=(sys.executable, "-c", script, str(home / "pids")),
    probe=HttpProbe(sys.argv[3]),
    grace_seconds=1.0,
)
after = Part(name="after", command=("sleep", "600"), probe=HttpProbe(sys.argv[3]), depends_on=("stubborn",))
Supervisor(Instance(home), lambda _options: [stubborn, after]).run()
"""


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.05)


def pids(home: Path) -> list[int]:
    return [int(pid) for pid in (home / "pids").read_text().split()]


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    found = Instance(tmp_path)
    found.save_options(Options(instance_id=uuid.uuid4().hex, port_base=20_000))
    return found


@pytest.fixture
def supervisor(instance: Instance) -> Iterator[subprocess.Popen[bytes]]:
    # No process listens there, so the first part runs without becoming ready.
    command = [sys.executable, "-c", SUPERVISE, str(instance.data_dir), STUBBORN, "http://127.0.0.1:9/"]
    with subprocess.Popen(command) as process:
        wait_for((instance.data_dir / "pids").exists)
        yield process
        stop(instance)
        if process.poll() is None:
            process.kill()


def states(instance: Instance) -> dict[str, str]:
    report = instance.report()
    return {part.name: part.state for part in report.parts} if report else {}


def test_a_part_that_ignores_term_is_killed_with_its_children(instance: Instance, supervisor: subprocess.Popen[bytes]) -> None:
    found = pids(instance.data_dir)
    wait_for(lambda: states(instance) == {"stubborn": "starting", "after": "waiting"})
    supervisor.terminate()
    assert supervisor.wait(PATIENCE_SECONDS) == 0
    assert [pid for pid in found if alive(pid)] == []
    assert states(instance) == {"stubborn": "stopped", "after": "stopped"}


def test_what_a_killed_supervisor_left_is_ended_and_nothing_else(
    instance: Instance, supervisor: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("starling_local.stack.launch._ORPHAN_GRACE_SECONDS", 1.0)
    found = pids(instance.data_dir)
    with subprocess.Popen(["sleep", "600"]) as stranger:
        supervisor.kill()
        supervisor.wait()
        assert all(alive(pid) for pid in found)
        assert clear_orphans(instance) == 2
        assert [pid for pid in found if alive(pid)] == []
        assert stranger.poll() is None
        stranger.kill()


def test_children_of_a_part_that_died_are_ended_before_it_starts_again(
    instance: Instance, supervisor: subprocess.Popen[bytes]
) -> None:
    leader, child = pids(instance.data_dir)
    (instance.data_dir / "pids").unlink()
    os.kill(leader, signal.SIGKILL)
    wait_for((instance.data_dir / "pids").exists)
    assert not alive(child)
    assert len(marked_processes(instance.options().instance_id)) == 2


CHANGING = """
import sys
from pathlib import Path
from starling_local.instance import Instance
from starling_local.stack.parts.part import HttpProbe, Part
from starling_local.stack.supervision.supervisor import Supervisor

def plan(options):
    configured = {"CONFIGURED": str(options.backfill)}
    return [Part(name=name, command=("sleep", "600"), probe=HttpProbe("http://127.0.0.1:9/"), env=env)
            for name, env in (("configured", configured), ("other", {}))]

Supervisor(Instance(Path(sys.argv[1])), plan).run()
"""


def test_only_a_part_with_a_changed_environment_is_restarted(instance: Instance) -> None:
    def processes() -> dict[str, int | None]:
        report = instance.report()
        return {part.name: part.pid for part in report.parts} if report else {}

    def configured() -> str | None:
        pid = processes().get("configured")
        return psutil.Process(pid).environ().get("CONFIGURED") if pid and alive(pid) else None

    with subprocess.Popen([sys.executable, "-c", CHANGING, str(instance.data_dir)]) as process:
        try:
            wait_for(lambda: configured() == "False")
            before = processes()
            instance.save_options(msgspec.structs.replace(instance.options(), backfill=True, revision=1))
            process.send_signal(signal.SIGHUP)
            wait_for(lambda: configured() == "True")
            after = processes()
        finally:
            stop(instance)
    assert before["configured"] != after["configured"]
    assert before["other"] == after["other"]


def test_a_second_supervisor_refuses(instance: Instance, supervisor: subprocess.Popen[bytes]) -> None:
    command = [sys.executable, "-c", SUPERVISE, str(instance.data_dir), STUBBORN, "http://127.0.0.1:9/"]
    second = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)
    assert "has a supervisor already" in second.stderr
    found = supervisor_of(instance)
    assert found is not None
    assert found.pid == supervisor.pid


def test_a_pid_that_belongs_to_another_process_now_is_no_supervisor(instance: Instance) -> None:
    instance.save_report(Report(supervisor_pid=os.getpid(), supervisor_started_at=1.0, revision=1))
    assert supervisor_of(instance) is None


# The limits of the product are minutes of patience; the test shortens them.
HANGING = """
import sys
from pathlib import Path
from starling_local.instance import Instance
from starling_local.stack.supervision import supervisor
from starling_local.stack.parts.part import HttpProbe, Part

supervisor.CHECK_INTERVAL_SECONDS, supervisor.SILENT_GRACE_SECONDS = 0.2, 1.0
url = f"http://127.0.0.1:{sys.argv[3]}"
part = Part(
    name="hanging",
    command=(sys.executable, "-c", sys.argv[2], sys.argv[3], str(Path(sys.argv[1]) / "failing")),
    probe=HttpProbe(f"{url}/readyz"),
    alive=HttpProbe(f"{url}/healthz"),
    grace_seconds=5.0,
    most_silent_seconds=float(sys.argv[4]),
)
supervisor.Supervisor(Instance(Path(sys.argv[1])), lambda _options: [part]).run()
"""

HEALTHY = """
import sys, time
from pathlib import Path
from prometheus_client import CollectorRegistry
from starling_common.telemetry.health import HealthServer

failing = Path(sys.argv[2])
alive = lambda: {"loop": failing.read_text() if failing.exists() else None}
HealthServer(("127.0.0.1", int(sys.argv[1])), CollectorRegistry(), alive=alive, ready=dict).start()
time.sleep(600)
"""


@pytest.fixture
def hanging(instance: Instance, base: int, request: pytest.FixtureRequest) -> Iterator[Instance]:
    """A part that may be silent for 3 s, or as long as the test's parameter."""
    limit = str(getattr(request, "param", 3.0))
    command = [sys.executable, "-c", HANGING, str(instance.data_dir), HEALTHY, str(base), limit]
    with (instance.data_dir / "supervisor.out").open("w") as out, subprocess.Popen(command, stderr=out):
        try:
            wait_for(lambda: states(instance) == {"hanging": "ready"})
            yield instance
        finally:
            stop(instance)


def restarted(instance: Instance, before: int | None) -> bool:
    part = part_of(instance)
    return part.state == "ready" and part.pid != before and part.restarts == 1


def part_of(instance: Instance) -> PartReport:
    report = instance.report()
    assert report is not None
    return report.parts[0]


def test_a_stopped_part_is_killed_and_started_again(hanging: Instance) -> None:
    before = part_of(hanging).pid
    assert before is not None
    os.kill(before, signal.SIGSTOP)
    wait_for(lambda: restarted(hanging, before))
    assert not alive(before)
    assert part_of(hanging).last_end == "answered no liveness check for 3 s"
    assert "hanging answered no liveness check for 3 s: TERM, and KILL in 1 s" in (hanging.data_dir / "supervisor.out").read_text()


def test_a_part_whose_liveness_fails_is_ended_and_started_again(hanging: Instance) -> None:
    before = part_of(hanging).pid
    (hanging.data_dir / "failing").write_text("no turn for 301 s")
    wait_for(lambda: part_of(hanging).state in ("ending", "backoff"))
    (hanging.data_dir / "failing").unlink()
    wait_for(lambda: restarted(hanging, before))
    assert part_of(hanging).last_end == "failed 3 liveness checks: 503 loop: no turn for 301 s"


@pytest.mark.parametrize("hanging", [600.0], indirect=True)
def test_a_part_that_is_stopped_for_a_moment_keeps_running(hanging: Instance) -> None:
    before = part_of(hanging).pid
    assert before is not None
    os.kill(before, signal.SIGSTOP)
    wait_for(lambda: states(hanging) == {"hanging": "unready"})
    os.kill(before, signal.SIGCONT)
    wait_for(lambda: states(hanging) == {"hanging": "ready"})
    assert (part_of(hanging).pid, part_of(hanging).restarts) == (before, 0)
