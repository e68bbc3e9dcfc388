"""`python -m starling_segmenter`: start, run, stop."""

import sys

from starling_common.kafka.access.check import await_access, needs_of
from starling_common.telemetry.logs import configure_logs
from starling_segmenter.settings import Settings
from starling_segmenter.wiring import open_service
from starling_stream.worker.arenas import share_arenas
from starling_stream.worker.run import run_service


def main() -> int:
    """Run until SIGTERM or SIGINT; return the exit code."""
    share_arenas()  # before the first thread starts
    settings = Settings()
    configure_logs("segmenter", settings.log_level)
    await_access(needs_of("segmenter"), settings.kafka.brokers, (settings.http.host, settings.http.port))
    with open_service(settings) as service:
        return run_service(service, settings)


if __name__ == "__main__":
    sys.exit(main())
