"""A broker that a test kills; its supervisor starts it again."""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass

from starling_common.testing import eventually
from starling_local.instance import Instance
from tests.conftest import Stack

RESTART_SECONDS = 300.0


@dataclass(frozen=True)
class Broker:
    """A broker of this test's own, which its supervisor starts again whenever it ends."""

    stack: Stack
    instance: Instance

    def kill(self, meanwhile: Callable[[], object]) -> None:
        """Return as soon as the broker answers again: its partitions have no leader yet, or one of an old epoch.

        `meanwhile` is called all the time: a client that asks during the restart gets metadata that is soon out of date.
        """
        killed = self._ready_pid()
        assert killed is not None
        os.kill(killed, signal.SIGKILL)

        def is_back() -> bool:
            meanwhile()
            return self._ready_pid() not in (None, killed)

        eventually(is_back, RESTART_SECONDS)

    def _ready_pid(self) -> int | None:
        report = self.instance.report()
        assert report is not None
        [kafka] = [part for part in report.parts if part.name == "kafka"]
        return kafka.pid if kafka.state == "ready" else None
