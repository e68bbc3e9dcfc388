"""A worker process for tests: the counter of `tests/unit/stream/counting.py` as a service. Settings come from the environment."""

import os
import signal
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

from starling_common.settings import Clock
from starling_common.wire import RegistryUnavailable
from starling_stream.model.processor import Decoded, Service, Unit
from starling_stream.model.settings import StreamSettings
from starling_stream.state.restore.restore import Restored, restore
from starling_stream.worker.run import run_service
from tests.unit.stream.counting import Counted, Counter


class Sleeper:
    """Suspends the process once, at its first passage of the point in `COUNTER_ASLEEP_IN`: fire, switch or restore."""

    def __init__(self, place: str | None) -> None:
        self._place = place

    def passed(self, place: str) -> None:
        if place == self._place:
            self._place = None
            os.kill(os.getpid(), signal.SIGSTOP)


SLEEPER = Sleeper(os.environ.get("COUNTER_ASLEEP_IN"))


def _restore_and_sleep(*given: Any) -> Restored:
    """Suspend the process after the replay, before the task runs."""
    restored = restore(*given)
    SLEEPER.passed("restore")
    return restored


class Asking(Counter):
    """A counter whose `decode` fails as without a registry while the file `COUNTER_REGISTRY_AWAY` exists."""

    def fire(self, key: bytes, unit: Unit[Counted]) -> None:
        SLEEPER.passed("fire")
        super().fire(key, unit)

    def switch(self, key: bytes, state: Counted, unit: Unit[Counted]) -> None:
        SLEEPER.passed("switch")
        super().switch(key, state, unit)

    def decode(self, topic: str, value: bytes) -> Decoded:
        if Path(os.environ.get("COUNTER_REGISTRY_AWAY", "/nowhere")).exists():
            raise RegistryUnavailable("unavailable for this test")
        return super().decode(topic, value)


def main() -> int:
    stage = os.environ["COUNTER_STAGE"]
    service = Service(
        stage=stage,
        inputs=(f"{stage}.a", f"{stage}.b"),
        processor=Asking(f"{stage}.out", f"{stage}.a", os.environ.get("COUNTER_PLAN", "").encode()),
        hold_ms=20,
        clock=Clock(os.environ.get("COUNTER_CLOCK", "event")),
        clock_topics=(f"{stage}.clock",),
        time_topic=f"{stage}.clock" if "COUNTER_TIME_TOPIC" in os.environ else None,
    )
    with patch("starling_stream.worker.assigned_tasks.restore", _restore_and_sleep):
        return run_service(service, StreamSettings())


if __name__ == "__main__":
    sys.exit(main())
