"""Edge: the end of a job at SIGTERM or SIGINT, in bounded time."""

import faulthandler
import os
import signal
import time
from threading import Event, Thread
from typing import Final

from pyspark import SparkContext

from starling_common.telemetry.logs import log

CLOSE_SECONDS: Final = 30.0
"""The time that Spark and the clients have to close after the current micro-batch."""
_DUMP_SECONDS: Final = 2.0


def stop_at_signals(stop_seconds: float, close_seconds: float = CLOSE_SECONDS) -> Event:
    """Return the event that SIGTERM and SIGINT set. The process ends at most the sum of both times after the signal.

    Spark may block endlessly while it closes a query or a session. The process then logs `stop_forced` with the stacks of Python
    and of the JVM, and exits with 0: as after a kill, the next start repeats a micro-batch that was not completed.
    """
    stopping = Event()

    def stop() -> None:
        stopping.set()
        time.sleep(stop_seconds + close_seconds)
        _force(stop_seconds + close_seconds)

    # The handler runs between two instructions of the main thread, which may hold the lock of `stopping`.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: Thread(target=stop, name="stop", daemon=True).start())
    return stopping


def _force(seconds: float) -> None:
    log(__name__).error("stop_forced", seconds=seconds, reason="Spark or a client did not close; the stacks follow")
    faulthandler.dump_traceback(all_threads=True)
    gateway = SparkContext._gateway  # noqa: SLF001 - pyspark offers no other access to the JVM's process
    jvm = None if gateway is None else getattr(gateway, "proc", None)
    if jvm is not None:
        jvm.send_signal(signal.SIGQUIT)  # the JVM prints its stacks
        time.sleep(_DUMP_SECONDS)
        jvm.kill()
    os._exit(0)
