"""Start, run, stop: `python -m starling_spark.jobs.views`."""

from starling_common.telemetry.logs import configure_logs
from starling_spark.jobs.views.settings import ViewsSettings
from starling_spark.jobs.views.wiring import run_views
from starling_spark.session.stopping import stop_at_signals


def main() -> None:
    """Run until SIGTERM or SIGINT; the current micro-batch is finished first."""
    settings = ViewsSettings()
    configure_logs("views", settings.log_level)
    run_views(settings, stop_at_signals(settings.views_stop_seconds))


if __name__ == "__main__":
    main()
