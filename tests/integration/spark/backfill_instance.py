"""The job `backfill` as an operator runs it: a process of its own on the shared stack, and its reports."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import Message

from starling_common.kafka.clients import TopicView
from starling_common.kafka.topics import BACKFILLS
from starling_common.testing import free_port
from starling_common.wire import Registry
from starling_local.runtime import runtime_jars
from starling_rules.ledger import Run, applied
from tests.conftest import Stack


class BackfillInstance:
    """`runs`: as published in `segments.backfills` since this began."""

    def __init__(self, stack: Stack, directory: Path) -> None:
        self.runs: Mapping[str, Run] = {}
        self._stack = stack
        self._directory = directory
        self._codec = Registry(stack.registry_url).codec(BACKFILLS, "BackfillReported")
        self._started: list[subprocess.Popen[bytes]] = []
        self._view = TopicView(stack.brokers, BACKFILLS, self._apply)
        self._view.start()

    def start(self, **more: str) -> "subprocess.Popen[bytes]":
        environment = {
            **os.environ,
            **self._stack.environment(),
            "STARLING_HTTP__PORT": str(free_port()),
            "STARLING_INSTANCE_ID": "backfill",
            "STARLING_CHECKPOINT_DIR": str(self._directory / "checkpoints"),
            "STARLING_SPARK_JARS": os.pathsep.join(str(jar) for jar in (*runtime_jars("spark"), *runtime_jars("iceberg"))),
            "STARLING_BACKFILL_REPORT_SECONDS": "0.2",
            **more,
        }
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "starling_spark.jobs.backfill"], env=environment, stdout=log, stderr=log, cwd=self._directory
            )
        self._started.append(process)
        return process

    @property
    def log(self) -> Path:
        return self._directory / "backfill.log"

    def output(self) -> str:
        return self.log.read_text()[-3000:]

    def partitions_done(self, place: str) -> int:
        """Of the runs for that segment (`workspace/key`)."""
        runs = [run for run in self.runs.values() if place in run.definitions]
        return sum(share.part is not None for run in runs for share in run.shares.values())

    def close(self) -> None:
        self._view.stop()
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.wait()

    def _apply(self, message: Message) -> None:
        self.runs = applied(self.runs, self._codec.decode(message.value() or b""))
