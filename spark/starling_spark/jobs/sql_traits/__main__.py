"""Run until no run of a SQL trait waits: `python -m starling_spark.jobs.sql_traits`."""

import sys
from threading import Event, Thread

from starling_common.telemetry.logs import configure_logs
from starling_rules.sql.runs import WAITING
from starling_spark.jobs.sql_traits.job import SqlTraitJob
from starling_spark.jobs.sql_traits.settings import SqlTraitsSettings
from starling_spark.jobs.sql_traits.wiring import sql_trait_job
from starling_spark.session.stopping import stop_at_signals

_STOP_SECONDS = 25.0


def main() -> int:
    """Perform the runs that wait or were interrupted; return 1 if one of them has to wait.

    A refused or failed run is no failure of the job: its state has the reason.
    """
    settings = SqlTraitsSettings()
    configure_logs("sql-traits", settings.log_level, sys.stderr)
    stopping = stop_at_signals(_STOP_SECONDS)
    with sql_trait_job(settings) as job:
        Thread(target=_stop, args=(stopping, job), name="stop-sql-traits", daemon=True).start()
        states = job.run(stopping.is_set)
    sys.stdout.write(" ".join(f"{state}={count}" for state, count in sorted(states.items())) + "\n")
    return 1 if states[WAITING] else 0


def _stop(stopping: Event, job: SqlTraitJob) -> None:
    stopping.wait()
    job.stop()


if __name__ == "__main__":
    sys.exit(main())
