"""Run until no import waits: `python -m starling_spark.jobs.imports`."""

import sys
from threading import Event, Thread

from starling_common.telemetry.logs import configure_logs
from starling_rules.imports import WAITING
from starling_spark.jobs.imports.job import ImportJob
from starling_spark.jobs.imports.settings import ImportSettings
from starling_spark.jobs.imports.wiring import import_job
from starling_spark.session.stopping import stop_at_signals

_STOP_SECONDS = 25.0


def main() -> int:
    """Run the imports that wait or were interrupted; return 1 if one of them has to wait.

    A failed import is no failure of the job: its state has the reason.
    """
    settings = ImportSettings()
    configure_logs("imports", settings.log_level, sys.stderr)
    stopping = stop_at_signals(_STOP_SECONDS)
    with import_job(settings) as job:
        Thread(target=_stop, args=(stopping, job), name="stop-import", daemon=True).start()
        try:
            states = job.run(stopping.is_set)
        except Exception:
            if not stopping.is_set():
                raise
            return 0  # the tasks were cancelled, and the next start continues
    sys.stdout.write(" ".join(f"{state}={count}" for state, count in sorted(states.items())) + "\n")
    return 1 if states[WAITING] else 0


def _stop(stopping: Event, job: ImportJob) -> None:
    stopping.wait()
    job.stop()


if __name__ == "__main__":
    sys.exit(main())
