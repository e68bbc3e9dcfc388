"""A worker process for tests: the counter of `tests/unit/stream/counting.py` as a service. Settings come from the environment."""

import os
import sys
from pathlib import Path

from starling_common.settings import Clock
from starling_common.wire import RegistryUnavailable
from starling_stream.processor import Decoded, Service
from starling_stream.settings import StreamSettings
from starling_stream.worker import run_service
from tests.unit.stream.counting import Counter


class Asking(Counter):
    """Asks the registry about every record, so to say: it is away for as long as the file `COUNTER_REGISTRY_AWAY` is there."""

    def decode(self, topic: str, value: bytes) -> Decoded:
        if Path(os.environ.get("COUNTER_REGISTRY_AWAY", "/nowhere")).exists():
            raise RegistryUnavailable("it is away, the test says")
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
    )
    return run_service(service, StreamSettings())


if __name__ == "__main__":
    sys.exit(main())
