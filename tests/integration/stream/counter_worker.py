"""A worker process for tests: the counter of `tests/unit/stream/counting.py` as a service. Settings come from the environment."""

import os
import sys

from starling_common.settings import Clock
from starling_stream.processor import Service
from starling_stream.settings import StreamSettings
from starling_stream.worker import run_service
from tests.unit.stream.counting import Counter


def main() -> int:
    stage = os.environ["COUNTER_STAGE"]
    service = Service(
        stage=stage,
        inputs=(f"{stage}.a", f"{stage}.b"),
        processor=Counter(f"{stage}.out", f"{stage}.a", os.environ.get("COUNTER_PLAN", "").encode()),
        hold_ms=20,
        clock=Clock(os.environ.get("COUNTER_CLOCK", "event")),
        clock_topics=(f"{stage}.clock",),
    )
    return run_service(service, StreamSettings())


if __name__ == "__main__":
    sys.exit(main())
