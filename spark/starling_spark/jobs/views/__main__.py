"""Start, run, stop: `python -m starling_spark.jobs.views`."""

import signal
from threading import Event

from starling_common.telemetry.logs import configure_logs
from starling_spark.jobs.views.settings import ViewsSettings
from starling_spark.jobs.views.wiring import run_views


def main() -> None:
    """Run until SIGTERM or SIGINT; the current micro-batch is finished first."""
    settings = ViewsSettings()
    configure_logs("views", settings.log_level)
    stopping = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    run_views(settings, stopping)


if __name__ == "__main__":
    main()
