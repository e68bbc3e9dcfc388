"""Run until no segment waits for a backfill: `python -m starling_spark.jobs.backfill`."""

from starling_common.telemetry.logs import configure_logs
from starling_spark.jobs.backfill.settings import BackfillSettings
from starling_spark.jobs.backfill.wiring import backfill_job
from starling_spark.session.stopping import stop_at_signals


def main() -> None:
    """Run until no segment waits, or until SIGTERM or SIGINT; the next start continues an unfinished run."""
    settings = BackfillSettings()
    configure_logs("backfill", settings.log_level)
    stopping = stop_at_signals(settings.lake_stop_seconds)
    with backfill_job(settings) as job:
        job.run(stopping)


if __name__ == "__main__":
    main()
