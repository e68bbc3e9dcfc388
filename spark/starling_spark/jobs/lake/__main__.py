"""Start, run, stop: `python -m starling_spark.jobs.lake`."""

import signal
from threading import Event

from starling_common.telemetry.logs import configure_logs
from starling_spark.jobs.lake.wiring import run_lake
from starling_spark.lakehouse.settings import LakeSettings


def main() -> None:
    """Run until SIGTERM or SIGINT; the current micro-batch is finished first."""
    settings = LakeSettings()
    configure_logs("lake", settings.log_level)
    stopping = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    run_lake(settings, stopping)


if __name__ == "__main__":
    main()
