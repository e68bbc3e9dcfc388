"""Command line: `python -m starling_tracker`."""

import sys

import uvloop

from starling_common.kafka.access.check import await_access, needs_of
from starling_common.telemetry.logs import configure_logs
from starling_tracker.settings import Settings
from starling_tracker.wiring import Service


def main() -> int:
    """Run the service until it stops; return the exit code of the process."""
    settings = Settings()
    configure_logs("tracker", settings.log_level)
    address = (settings.http.host, settings.http.port)
    await_access(needs_of("tracker"), settings.kafka.brokers, address, serves_without_broker=True)
    return uvloop.run(_serve(settings))


async def _serve(settings: Settings) -> int:
    return await Service(settings).run()


if __name__ == "__main__":
    sys.exit(main())
