"""The command line against a secured broker, with the rights of an auditor and of an operator."""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import psutil
import pytest
from confluent_kafka import Producer

from starling_common.kafka.clients import produce_and_wait
from starling_common.outcome import Refused
from starling_common.records.dead_letters import SourceRecord, dead_letter
from starling_common.wire import Registry
from starling_local.instance import Instance, Options, PartReport, Report
from starling_local.testing import free_base
from tests.conftest import Stack
from tests.integration.projector.gate import Gate
from tests.secured_broker import secured_broker
from tests.secured_pipeline import Secure, secure_installation

pytestmark = pytest.mark.long

PARTS = ("kafka", "normalizer-0", "segmenter-0", "projector-0", "delivery-0")


@dataclass(frozen=True)
class CommandLine:
    """An instance whose broker is the secured one."""

    secure: Secure
    instance: Instance

    def run(self, user: str, *words: str) -> tuple[int, str]:
        """Run a command as a user; return its exit code and what it prints."""
        done = self.secure.command(*words, "--data-dir", str(self.instance.data_dir), user=user)
        return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def line(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    home = tmp_path_factory.mktemp("line")
    with free_base() as base:
        options = Options(instance_id="line", port_base=base, clock="wall")
        instance, registry = Instance(home / "instance"), urlsplit(stack.registry_url)
        instance.save_options(options)
        own = psutil.Process()
        parts = tuple(PartReport(name=name, state="ready", pid=os.getpid()) for name in PARTS)
        report = Report(supervisor_pid=own.pid, supervisor_started_at=own.create_time(), revision=0, parts=parts)
        instance.save_report(report)
        ports = options.ports
        with (
            Gate(registry.hostname or "", registry.port or 0, ports.fixed("registry")),
            secured_broker(home / "broker", ports.fixed("kafka")) as broker,
            secure_installation(broker, stack, home) as secure,
        ):
            yield CommandLine(secure, instance)


@pytest.mark.long
def test_lags_and_settling_need_the_rights_of_an_auditor(line: CommandLine) -> None:
    assert line.run("auditor", "settle", "--timeout", "20s") == (0, "settled\n")
    _write(line, "ingest.track", b"no record of an edge")
    code, printed = line.run("auditor", "status", "--json")
    lags = {part["name"]: part["lag"] for part in json.loads(printed)["parts"]}
    assert (code, lags["normalizer-0"], lags["projector-0"]) == (0, 1, 0)
    code, printed = line.run("auditor", "settle", "--timeout", "1s")
    assert code == 1
    assert "normalizer" in printed
    code, printed = line.run("auditor", "topics")
    assert code == 0
    assert "normalizer 1" in printed


def test_dead_letters_are_listed_by_an_auditor_and_replayed_by_an_operator(line: CommandLine) -> None:
    source = SourceRecord("ingest.page", 0, 0, b"default/ada", b"value", (), time.time_ns() // 1000)
    letter = dead_letter("normalizer", source, Refused("undecodable", "no record of an edge"), time.time_ns() // 1_000_000)
    registry = Registry(line.secure.stack.registry_url)
    _write(line, "normalizer.dlq", registry.codec("normalizer.dlq", "DeadLetter").encode(letter))
    code, printed = line.run("auditor", "dlq", "list")
    assert code == 0, printed
    assert "1 dead letter" in printed
    code, printed = line.run("auditor", "dlq", "replay", "--all")
    assert code == 1
    assert "authorization failed" in printed.lower()
    code, printed = line.run("operator", "dlq", "replay", "--all")
    assert code == 0, printed
    assert "replayed" in line.run("auditor", "dlq", "list")[1]


def test_a_user_without_the_rights_gets_the_reason(line: CommandLine) -> None:
    code, printed = line.run("ingest", "dlq", "list")
    assert code == 1
    assert "dlq.replays: Broker: Topic authorization failed" in printed


def _write(line: CommandLine, topic: str, value: bytes) -> None:
    produce_and_wait(Producer({"bootstrap.servers": line.secure.broker.opened}), topic, key=b"k", value=value, headers=[])
