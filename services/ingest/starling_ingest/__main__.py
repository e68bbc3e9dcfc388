"""Command line: `python -m starling_ingest`."""

import gc
import sys

import uvloop

from starling_common.kafka.access.check import await_access, needs_of
from starling_common.telemetry.logs import configure_logs
from starling_ingest.settings import Settings
from starling_ingest.wiring import Service


def main() -> int:
    """Run the service until it stops; return the exit code of the process."""
    settings = Settings()
    configure_logs("ingest", settings.log_level)
    address = (settings.http.host, settings.http.port)
    await_access(needs_of("ingest"), settings.kafka.brokers, address, serves_without_broker=True)
    collect_garbage_rarely()
    return uvloop.run(_serve(settings))


def collect_garbage_rarely() -> None:
    """Run the garbage collector rarely: requests create no reference cycles, and frequent collections cost throughput."""
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


async def _serve(settings: Settings) -> int:
    return await Service(settings).run()


if __name__ == "__main__":
    sys.exit(main())
