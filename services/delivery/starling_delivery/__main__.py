"""`python -m starling_delivery`: start, run, stop."""

import asyncio
import os
import sys

from starling_common.kafka.access_check import await_access
from starling_common.telemetry.logs import configure_logs, log
from starling_delivery.channels import CHANNELS
from starling_delivery.settings import CHANNEL_VARIABLE, EMAIL, EmailSettings, Settings
from starling_delivery.wiring import build


def main() -> int:
    """Serve one channel until SIGTERM. Return 2 if the settings name a channel that must not run."""
    settings = EmailSettings() if os.environ.get(CHANNEL_VARIABLE) == EMAIL else Settings()
    configure_logs(f"delivery-{settings.channel}", settings.log_level)
    if isinstance(settings, Settings) and (refusal := settings.refusal(CHANNELS)):
        log(__name__).error("refused_to_start", reason=refusal)
        return 2
    await_access(settings.needs, settings.kafka.brokers, (settings.http.host, settings.http.port))
    asyncio.run(build(settings).run())
    return 0


if __name__ == "__main__":
    sys.exit(main())
