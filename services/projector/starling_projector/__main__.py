"""`python -m starling_projector`: start, run, stop."""

import gc
import signal
import sys
from threading import Thread

from starling_common.kafka.access.check import await_access
from starling_common.telemetry.logs import configure_logs
from starling_projector.settings import STAGE, ProjectorSettings
from starling_projector.wiring import build_worker


def main() -> int:
    """Run until SIGTERM or SIGINT and return the exit code."""
    settings = ProjectorSettings()
    configure_logs(STAGE, settings.log_level)
    await_access(settings.needs, settings.kafka.brokers, (settings.http.host, settings.http.port))
    worker = build_worker(settings)
    # The handler runs between two instructions of the main thread, which may hold the lock that `stop` takes.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: Thread(target=worker.stop, name="stop", daemon=True).start())
    # A batch is some 100,000 objects without reference cycles, which the default thresholds would scan again and again.
    gc.freeze()
    gc.set_threshold(200_000, 20, 100)
    worker.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
