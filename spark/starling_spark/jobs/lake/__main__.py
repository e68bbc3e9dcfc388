"""Start, run, stop: `python -m starling_spark.jobs.lake`."""

from starling_common.telemetry.logs import configure_logs
from starling_spark.jobs.lake.wiring import run_lake
from starling_spark.lakehouse.settings import LakeSettings
from starling_spark.session.stopping import stop_at_signals


def main() -> None:
    """Run until SIGTERM or SIGINT; the current micro-batch is finished first."""
    settings = LakeSettings()
    configure_logs("lake", settings.log_level)
    run_lake(settings, stop_at_signals(settings.lake_stop_seconds))


if __name__ == "__main__":
    main()
