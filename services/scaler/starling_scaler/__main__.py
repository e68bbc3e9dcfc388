"""`python -m starling_scaler`: start, run, stop."""

import signal
import sys
from threading import Thread

from starling_common.telemetry.logs import configure_logs, log
from starling_scaler.cluster import KubernetesUnavailable
from starling_scaler.settings import STAGE, ScalerSettings
from starling_scaler.wiring import build_scaler


def main() -> int:
    """Run until SIGTERM or SIGINT and return the exit code."""
    settings = ScalerSettings()
    configure_logs(STAGE, settings.log_level)
    try:
        scaler = build_scaler(settings)
    except KubernetesUnavailable as error:
        log(__name__).error("cannot_start", error=str(error))
        return 1
    # The handler runs between two instructions of the main thread, which may hold the lock that `stop` takes.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: Thread(target=scaler.stop, name="stop", daemon=True).start())
    scaler.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
