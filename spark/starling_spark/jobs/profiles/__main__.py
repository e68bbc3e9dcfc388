"""Start, run, stop: `python -m starling_spark.jobs.profiles`."""

import signal
from threading import Event

from starling_common.telemetry.logs import configure_logs
from starling_spark.jobs.profiles.settings import ProfilesSettings
from starling_spark.jobs.profiles.wiring import profiles_job


def main() -> None:
    """Run until SIGTERM or SIGINT; the current micro-batch is finished first."""
    settings = ProfilesSettings()
    configure_logs("profiles", settings.log_level)
    stopping = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    with profiles_job(settings) as job:
        job.run(stopping, settings.profiles_stop_seconds)


if __name__ == "__main__":
    main()
