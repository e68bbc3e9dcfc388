"""The command against a real broker: start, look, fall, start again, stop."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from starling_local.instance import Instance, PartReport
from starling_local.preflight import is_free
from starling_local.stack.launch import stop, supervisor_of
from starling_local.stack.supervision.process import marked_processes
from starling_local.testing import embedded

PATIENCE_SECONDS = 60.0

Starling = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A data directory whose stack is stopped afterwards, whatever the test did."""
    data_dir = tmp_path / "instance"
    yield data_dir
    stop(Instance(data_dir))


def part(data_dir: Path, name: str) -> PartReport:
    report = Instance(data_dir).report()
    assert report is not None
    return next(one for one in report.parts if one.name == name)


def document(starling: Starling, data_dir: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(starling(data_dir, "status", "--json").stdout)
    return found


def create_topic(base: int, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{base + 3}"})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)


def topics(base: int) -> set[str]:
    return set(AdminClient({"bootstrap.servers": f"127.0.0.1:{base + 3}"}).list_topics(timeout=30).topics)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.1)


@pytest.mark.long
def test_up_twice_then_down_then_up_again(starling: Starling, home: Path, base: int) -> None:
    started = starling(home, "up", "--detach", "--only", "kafka", "--port-base", str(base))
    assert started.returncode == 0, started.stderr
    assert [line.split()[0] for line in started.stdout.splitlines() if line.startswith("  kafka")] == ["kafka", "kafka"]
    assert "ready" in started.stdout.splitlines()
    create_topic(base, "kept")
    pid = part(home, "kafka").pid

    again = starling(home, "up", "--detach")
    assert (again.returncode, part(home, "kafka").pid) == (0, pid)

    found = starling(home, "status", "--json")
    assert found.returncode == 0
    assert json.loads(found.stdout)["parts"] == [
        {"name": "kafka", "state": "ready", "pid": pid, "lag": None, "restarts": 0, "last_end": ""}
    ]

    assert starling(home, "down").stdout.splitlines() == ["stopping", "stopped"]
    assert starling(home, "down").stdout.splitlines() == ["nothing was running"]
    assert marked_processes(Instance(home).options().instance_id) == []
    assert all(is_free(port) for port in range(base, base + 100))
    assert document(starling, home)["ready"] is False
    assert starling(home, "status").returncode == 1

    assert starling(home, "up", "--detach").returncode == 0
    assert "kept" in topics(base)


@pytest.mark.long
def test_a_broker_killed_comes_back_with_its_topics(starling: Starling, home: Path, base: int) -> None:
    assert starling(home, "up", "--detach", "--only", "kafka", "--port-base", str(base)).returncode == 0
    create_topic(base, "kept")
    killed = part(home, "kafka").pid
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    wait_for(lambda: part(home, "kafka").state == "ready" and part(home, "kafka").pid not in (None, killed))
    assert part(home, "kafka").restarts == 1
    assert "kept" in topics(base)


@pytest.mark.long
def test_a_supervisor_killed_leaves_nothing_in_the_way_of_the_next_up(starling: Starling, home: Path, base: int) -> None:
    assert starling(home, "up", "--detach", "--only", "kafka", "--port-base", str(base)).returncode == 0
    supervisor, old = supervisor_of(Instance(home)), part(home, "kafka").pid
    assert supervisor is not None
    assert old is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    wait_for(lambda: supervisor_of(Instance(home)) is None)
    assert document(starling, home)["parts"] == [
        {"name": "kafka", "state": "stopped", "pid": None, "lag": None, "restarts": 0, "last_end": ""}
    ]

    again = starling(home, "up", "--detach", "--only", "kafka")
    assert again.returncode == 0, again.stderr
    assert not psutil.pid_exists(old)
    (running,) = marked_processes(Instance(home).options().instance_id)
    assert running.pid == part(home, "kafka").pid


def test_ctrl_c_in_the_foreground_stops_everything(home: Path, base: int) -> None:
    command = [sys.executable, "-m", "starling_cli", "up", "--only", "kafka", "--port-base", str(base), "--data-dir", str(home)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as foreground:
        assert foreground.stdout is not None
        for line in foreground.stdout:
            if line.startswith("Ctrl-C"):
                break
        foreground.send_signal(signal.SIGINT)
        rest = foreground.stdout.read()
    assert foreground.returncode == 130
    assert "stopping" in rest
    assert marked_processes(Instance(home).options().instance_id) == []


def test_a_port_in_use_is_reported_and_nothing_is_started(starling: Starling, home: Path, base: int) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", base + 3))
        taken.listen()
        refused = starling(home, "up", "--detach", "--only", "kafka", "--port-base", str(base))
    assert refused.returncode == 2
    assert f"port {base + 3} (kafka) is taken by process {os.getpid()}" in refused.stderr
    assert "--port-base" in refused.stderr
    assert not home.exists()


@pytest.mark.long
def test_a_part_that_cannot_start_is_reported_with_its_output(starling: Starling, home: Path, base: int) -> None:
    assert starling(home, "up", "--detach", "--only", "kafka", "--port-base", str(base)).returncode == 0
    assert starling(home, "down").returncode == 0
    (home / "kafka" / "data" / "meta.properties").write_text("version=1\nnode.id=2\ncluster.id=another\n")
    failed = starling(home, "up", "--detach", "--timeout", "25")
    assert failed.returncode == 1
    assert "kafka ended with exit code 1; starts again in" in failed.stderr
    assert "not ready after 25 s" in failed.stderr
    assert "node" in failed.stderr.lower()


@pytest.mark.long
def test_two_databases_side_by_side(tmp_path: Path) -> None:
    with embedded({"cassandra"}, tmp_path / "one") as one, embedded({"cassandra"}, tmp_path / "other") as other:
        assert one.cassandra_port != other.cassandra_port
        for found in (one, other):
            with socket.create_connection((found.cassandra_host, found.cassandra_port), timeout=10):
                pass
    assert marked_processes(Instance(tmp_path / "one").options().instance_id) == []


def test_commands_without_an_instance_name_the_next_step(starling: Starling, tmp_path: Path) -> None:
    for command in (("down",), ("settle",), ("topics",), ("clock", "advance", "2020-01-01"), ("dlq", "list"), ("segments", "list")):
        refused = starling(tmp_path / "none", *command)
        assert refused.returncode == 1, command
        assert "run `starling up` first" in refused.stderr, command
        assert "Traceback" not in refused.stderr
