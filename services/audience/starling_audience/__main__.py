"""`python -m starling_audience`: start, run, stop."""

import signal
import sys
from threading import Thread

from starling_audience.settings import SERVICE, AudienceSettings
from starling_audience.wiring import build_process
from starling_common.kafka.access.check import await_access, needs_of
from starling_common.telemetry.logs import configure_logs


def main() -> int:
    """Run until SIGTERM or SIGINT and return the exit code."""
    settings = AudienceSettings()
    configure_logs(SERVICE, settings.log_level)
    await_access(needs_of(SERVICE), settings.kafka.brokers, (settings.http.host, settings.http.port))
    process = build_process(settings)
    # The handler runs between two instructions of the main thread, which may hold the lock that `stop` takes.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: Thread(target=process.stop, name="stop", daemon=True).start())
    process.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
