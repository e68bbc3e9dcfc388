"""The service of the tutorial is complete: taken from the page, run on a real broker, killed, and exact.

The oracle knows no events and timers: it reads the days on which a user was active.
"""

import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from starling_common.deploy import create_topics, register_schemas
from starling_common.kafka.clients import producer_config
from starling_common.kafka.topics import AGGREGATES, BEHAVIOUR, CLOCK, _topic, load_catalogue
from starling_common.schemas import schema_directory
from starling_common.telemetry.metrics import telemetry
from starling_common.testing import free_port
from starling_common.time.instants import wall_clock_micros
from starling_common.wire import Codec, Registry
from tests.faults.log import lag, read_all
from tests.faults.parts import Stack, running
from tests.integration.stream.rig import Worker, wait_until

GUIDE = (Path(__file__).parents[3] / "docs/tutorial/stateful-service.md").read_text()
FILES = re.findall(r"^`([a-z_]+/[a-z_]+\.py)`:\n\n```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
DAY_MS = 86_400_000
FIRST_DAY, DAYS, USERS = 20_000, 30, 60
PARTITIONS = load_catalogue().profile_partitions
GROUP = "starling-streaks"


def _block(kind: str, containing: str) -> str:
    blocks = re.findall(rf"^```{kind}\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    [found] = [block for block in blocks if containing in block]
    return str(found)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A broker of its own: the service reads and writes the platform's topics."""
    with running(("kafka", "registry"), tmp_path_factory.mktemp("parts")) as stack:
        entries = yaml.safe_load(_block("yaml", "streaks.dlq"))["topics"]
        topics = [_topic(name, entry, PARTITIONS) for name, entry in entries.items()]
        create_topics(AdminClient({"bootstrap.servers": stack.brokers}), topics, 1)
        register_schemas(Registry(stack.registry_url), topics)
        yield stack


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the tutorial's package."""
    directory = tmp_path_factory.mktemp("package")
    for name, source in FILES:
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(source)
    return directory


@pytest.fixture(scope="module")
def codecs(parts: Stack) -> Mapping[str, Codec]:
    registry, topics = Registry(parts.registry_url), load_catalogue().topics
    return {name: registry.codec(name, topics[name].schema) for name in (BEHAVIOUR, CLOCK, AGGREGATES)}


@pytest.fixture
def example() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((schema_directory() / "examples/BehaviourEvent.json").read_text())[0]
    return found


def _start(parts: Stack, package: Path, disk: Path, **environment: str) -> Worker:
    port, log = free_port(), disk.with_suffix(f".{len(list(disk.parent.iterdir()))}.log")
    settings = {
        **parts.environment(),
        "PYTHONPATH": str(package),
        "STARLING_CLOCK": "event",
        "STARLING_BACKING_STORE": "false",
        "STARLING_INSTANCE_ID": "streaks-0",
        "STARLING_HTTP__PORT": str(port),
        "STARLING_STATE_DIR": str(disk),
        "STARLING_UNIT_MAX_RECORDS": "100",
        "STARLING_HEARTBEAT_INTERVAL_SECONDS": "0.5",
    }
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "starling_streaks"], env=os.environ | settings | environment, stdout=out, stderr=out
        )
    return Worker(process, log, port)


def _settled(parts: Stack) -> bool:
    return lag(parts.brokers, GROUP, (BEHAVIOUR, CLOCK), PARTITIONS) == 0


def _active_days(dice: random.Random, workspace: str) -> dict[bytes, list[int]]:
    """Return user -> days. Every user is active on the first day."""
    users = [f"{workspace}/u{number}".encode() for number in range(USERS)]
    later = range(FIRST_DAY + 1, FIRST_DAY + DAYS)
    return {user: [FIRST_DAY, *(day for day in later if dice.random() < 0.7)] for user in users}


def _expected(days: list[int]) -> list[str]:
    outputs, streak = ["1"], 1
    for before, day in itertools.pairwise(days):
        outputs += [] if day == before + 1 else ["0"]
        streak = streak + 1 if day == before + 1 else 1
        outputs.append(str(streak))
    return [*outputs, "0"]


def _events(dice: random.Random, active: Mapping[bytes, list[int]]) -> list[tuple[bytes, int]]:
    """Return (user, event time) in the order of time, two a day; some events are long past."""
    made = [(user, day * DAY_MS + dice.randrange(DAY_MS)) for user, days in active.items() for day in days for _ in range(2)]
    made.sort(key=lambda one: one[1])
    late = {at: [(user, at - 9 * DAY_MS)] for user, at in made[49::50]}
    return [event for user, at in made for event in [(user, at), *late.get(at, [])]]


class Source:
    """Writes the service's inputs, and reads its outputs for a workspace."""

    def __init__(self, parts: Stack, codecs: Mapping[str, Codec], example: Mapping[str, Any]) -> None:
        self._brokers = parts.brokers
        self._producer = Producer(producer_config(parts.brokers))
        self._codecs, self._example = codecs, example

    def send(self, events: list[tuple[bytes, int]]) -> None:
        for key, at in events:
            workspace, _, user = key.decode().partition("/")
            record = {
                **self._example,
                "workspace": workspace,
                "user_id": user,
                "event_time": at,
                "received_at": wall_clock_micros(),
            }
            self._producer.produce(BEHAVIOUR, self._codecs[BEHAVIOUR].encode(record), key)
        assert self._producer.flush(30) == 0

    def advance(self, instant: int) -> None:
        record = {"received_at": wall_clock_micros(), "instant": instant, "correlation_id": "c"}
        for partition in range(PARTITIONS):
            self._producer.produce(CLOCK, self._codecs[CLOCK].encode(record), None, partition)
        assert self._producer.flush(30) == 0

    def outputs(self, workspace: str) -> dict[bytes, list[str]]:
        found: dict[bytes, list[str]] = defaultdict(list)
        for records in read_all(self._brokers, [AGGREGATES])[AGGREGATES].values():
            for record in records:
                if record.key.startswith(f"{workspace}/".encode()):
                    found[record.key].append(self._codecs[AGGREGATES].decode(record.value)["value"])
        return dict(found)


@pytest.fixture
def source(parts: Stack, codecs: Mapping[str, Codec], example: dict[str, Any]) -> Source:
    return Source(parts, codecs, example)


def test_it_is_short() -> None:
    assert [name for name, _ in FILES] == ["starling_streaks/agents.py", "starling_streaks/__main__.py"]
    assert sum(source.count("\n") for _, source in FILES) < 100


@pytest.mark.long
def test_it_runs_without_a_broker(
    package: Path, codecs: Mapping[str, Codec], example: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(package)
    namespace: dict[str, Any] = {}
    exec(compile(_block("python", "def streak_after"), "guide", "exec"), namespace)  # noqa: S102 - our own documentation
    assert namespace["streak_after"](codecs, example, [5, 6, 7, 9, 10]) == ["1", "2", "3", "0", "1", "2", "0"]


@pytest.mark.long
@pytest.mark.parametrize(("disk_lost", "seed"), [pytest.param(False, 1, id="disk_kept"), pytest.param(True, 2, id="disk_lost")])
def test_it_is_exact_over_a_kill(parts: Stack, package: Path, source: Source, tmp_path: Path, disk_lost: bool, seed: int) -> None:
    dice, workspace = random.Random(seed), f"ws{seed}"
    active = {user: [day + seed * 100 for day in days] for user, days in _active_days(dice, workspace).items()}
    events = _events(dice, active)
    source.send(events[: len(events) // 2])
    victim = _start(parts, package, tmp_path / "disk", STARLING_FAILPOINT="after_produce:6")
    wait_until(lambda: not victim.alive(), "the worker to kill itself")
    assert victim.process.returncode == -9, victim.log.read_text()[-3_000:]
    if disk_lost:
        shutil.rmtree(tmp_path / "disk")
    source.send(events[len(events) // 2 :])
    heir = _start(parts, package, tmp_path / "disk")
    try:
        wait_until(heir.ready, "the worker to be ready")
        wait_until(lambda: _settled(parts), "all events to be processed")
        source.advance((FIRST_DAY + seed * 100 + DAYS + 2) * DAY_MS)
        wait_until(lambda: _settled(parts), "the clock to be reached")
        assert heir.terminate() == 0
    finally:
        heir.kill()
    outputs = source.outputs(workspace)
    assert {user: (outputs.get(user), days) for user, days in active.items() if outputs.get(user) != _expected(days)} == {}


def test_its_metrics_are_there_without_a_line_of_code(parts: Stack, package: Path, tmp_path: Path) -> None:
    worker = _start(parts, package, tmp_path / "disk")
    try:
        wait_until(worker.ready, "the worker to be ready")
        with urllib.request.urlopen(f"http://127.0.0.1:{worker.port}/metrics", timeout=5) as answer:
            text = answer.read().decode()
        outputs = set(re.findall(r"^# TYPE (\S+?)(?:_created)? \S+$", text, re.MULTILINE))
        assert {name for name in telemetry() if name.startswith("starling_stream_")} <= outputs
    finally:
        worker.kill()
