"""Command line: `python -m starling_normalizer`."""

import sys

from starling_common.kafka.access.check import await_access, needs_of
from starling_common.telemetry.logs import configure_logs
from starling_normalizer.settings import Settings
from starling_normalizer.wiring import open_service
from starling_stream.worker.arenas import share_arenas
from starling_stream.worker.run import run_service


def main() -> int:
    """Run the service until it stops; return the exit code of the stream layer."""
    share_arenas()  # before the first thread starts
    settings = Settings()
    configure_logs("normalizer", settings.log_level)
    await_access(needs_of("normalizer"), settings.kafka.brokers, (settings.http.host, settings.http.port))
    with open_service(settings) as service:
        return run_service(service, settings)


if __name__ == "__main__":
    sys.exit(main())
