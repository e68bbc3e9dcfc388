"""Start, run, stop: `python -m starling_spark.jobs.profiles`."""

from starling_common.telemetry.logs import configure_logs
from starling_spark.jobs.profiles.settings import ProfilesSettings
from starling_spark.jobs.profiles.wiring import profiles_job
from starling_spark.session.stopping import stop_at_signals


def main() -> None:
    """Run until SIGTERM or SIGINT; the current micro-batch is finished first."""
    settings = ProfilesSettings()
    configure_logs("profiles", settings.log_level)
    stopping = stop_at_signals(settings.profiles_stop_seconds)
    with profiles_job(settings, stopping.is_set) as job:
        job.run(stopping, settings.profiles_stop_seconds)


if __name__ == "__main__":
    main()
