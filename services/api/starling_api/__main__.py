"""`python -m starling_api`: start, run, stop."""

import asyncio
import signal
import sys

from starling_api.definitions.publisher import SERVICE
from starling_api.settings import ApiSettings
from starling_api.wiring import build_api
from starling_common.kafka.access.check import await_access, needs_of
from starling_common.telemetry.logs import configure_logs


async def run(settings: ApiSettings) -> None:
    """Serve requests until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await build_api(settings).serve(stop)


def main() -> int:
    """Run one API process and return its exit code."""
    settings = ApiSettings()
    configure_logs(SERVICE, settings.log_level)
    address = (settings.http.host, settings.http.port)
    await_access(needs_of(SERVICE), settings.kafka.brokers, address, serves_without_broker=True)
    asyncio.run(run(settings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
