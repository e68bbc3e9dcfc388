"""The platform under attack: an instance of its own, its processes, and the well-behaved workspace beside the attacker's."""

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from starling_cli.commands.common import pipeline_of
from starling_cli.settle.settle import NotSettled, settle
from starling_local.instance import Instance
from starling_local.stack.parts.services import api_token_of, write_key_of
from starling_local.testing import Addresses, embedded
from tests.fuzz.letters import Letters
from tests.fuzz.probe import Sample
from tests.fuzz.records import ATTACKER

PARTS: Final = frozenset({"ingest", "normalizer-0", "segmenter-0", "projector-0", "api", "delivery-0"})
BYSTANDER: Final = "shop"
STALL_MS: Final = 2_000
"""The most time from an event of the bystander to its membership change."""


@dataclass(frozen=True)
class World:
    """A running instance. `with_spark`: the job of computed traits runs as well."""

    at: Addresses
    with_spark: bool

    @property
    def instance(self) -> Instance:
        """Return the files of the instance."""
        return Instance(self.at.data_dir)

    @property
    def write_key(self) -> str:
        """Return the attacker's write key."""
        return write_key_of(ATTACKER)

    @property
    def token(self) -> str:
        """Return the attacker's token."""
        return api_token_of(ATTACKER)

    def letters(self) -> Letters:
        """Return a reader of the dead letters."""
        return Letters(self.at.kafka, self.at.registry_url)

    def stages(self) -> frozenset[str]:
        """Return the stages that read topics."""
        return frozenset(
            {"normalizer", "segmenter", "webhook", "projector", "projector-events"} | ({"profiles"} if self.with_spark else set())
        )

    def settle(self, timeout_seconds: float) -> None:
        """Return once every stage has processed everything."""
        with pipeline_of(self.instance) as pipeline:
            settle(pipeline, timeout_seconds)

    def drain(self, timeout_seconds: float, most: int) -> None:
        """Return once the stages lag by so many records together at most, beside a workspace that goes on. Raises: NotSettled."""
        deadline = time.monotonic() + timeout_seconds
        with pipeline_of(self.instance) as pipeline:
            while sum((lags := pipeline.state().lags).values()) > most:
                if time.monotonic() > deadline:
                    raise NotSettled(f"after {timeout_seconds:g} s the stages lag by {dict(lags)}")
                time.sleep(0.2)  # sleep: between two looks

    def processes(self) -> dict[str, tuple[int | None, int]]:
        """Return the process id and the number of restarts of each part."""
        report = self.instance.report()
        if report is None:
            raise RuntimeError("the supervisor has written no report")
        return {part.name: (part.pid, part.restarts) for part in report.parts if not part.is_step}


@contextmanager
def running(data_dir: Path, *, with_spark: bool) -> Iterator[World]:
    """Start a new instance with the wall clock and two more workspaces; yield it when all parts are ready."""
    shutil.rmtree(data_dir, ignore_errors=True)  # the hostile records of the last run would be met again
    parts = PARTS | ({"spark"} if with_spark else set())
    with embedded(
        parts, data_dir, clock="wall", workspaces=(ATTACKER, BYSTANDER), kills_cassandra=False, timeout_seconds=600
    ) as at:
        world = World(at, with_spark)
        if with_spark:
            _define_trait(world)
        yield world


def _define_trait(world: World) -> None:
    """Define a computed trait in the attacker's workspace: without one, the job skips all events."""
    trait = {"key": "fuzz_revenue", "name": "fuzz", "event": "Order Completed", "measure": {"sum": "revenue"}}
    with httpx.Client(base_url=world.at.api_url, headers={"Authorization": f"Bearer {world.token}"}, trust_env=False) as api:
        api.post("/v1/computed-traits", json=trait, timeout=60).raise_for_status()


class Bystander:
    """The process of the well-behaved workspace. `rate` in events a second."""

    def __init__(self, world: World, rate: float) -> None:
        at = world.at
        command = [
            sys.executable, "-m", "tests.fuzz.probe", "--ingest", at.ingest_url, "--api", at.api_url, "--brokers", at.kafka,
            "--registry", at.registry_url, "--write-key", write_key_of(BYSTANDER), "--token", api_token_of(BYSTANDER),
            "--rate", str(rate),
        ]  # fmt: skip
        self.samples: list[Sample] = []
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.samples.append(Sample(**json.loads(line)))

    def wait_started(self, timeout_seconds: float = 120.0) -> None:
        """Return when the first event has become a membership change."""
        deadline = time.monotonic() + timeout_seconds
        while not self.samples:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the well-behaved workspace did not start")
            time.sleep(0.1)  # sleep: between two looks

    def between(self, since: float, until: float) -> list[Sample]:
        """Return the events that were sent in that time (epoch seconds)."""
        return [sample for sample in self.samples if since <= sample.sent_at <= until]

    def stop(self, *, stalls: bool = True) -> list[str]:
        """End the process, and return what went wrong: refused requests, changes that never came, and `stalls`.

        A delay of the machine itself is no stall of the platform: it is subtracted.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        code = self._process.wait(180)
        self._thread.join(10)
        self._process.stdout.close()
        wrong = [] if code == 0 else [f"the well-behaved workspace ended with {code}"]
        for sample in self.samples:
            if sample.ms is None:
                wrong.append(f"the change of an event at {sample.sent_at:.0f} never came")
            elif stalls and sample.ms - sample.delay_ms > STALL_MS:
                wrong.append(
                    f"an event at {sample.sent_at:.0f} took {sample.ms:.0f} ms, the machine's own delay {sample.delay_ms:.0f} ms"
                )
        return wrong
