"""`python -m starling_delivery`: start, run, stop."""

import asyncio
import os
import sys

from starling_common.kafka.access.check import await_access
from starling_common.telemetry.logs import configure_logs, log
from starling_delivery.channels import CHANNELS
from starling_delivery.feeds.wiring import build_feeds
from starling_delivery.settings import CHANNEL_VARIABLE, EMAIL, FEEDS, EmailSettings, FeedSettings, Settings
from starling_delivery.wiring import build


def main() -> int:
    """Serve one channel until SIGTERM. Return 2 if the settings name a channel that must not run."""
    settings = _settings()
    configure_logs(f"delivery-{settings.channel}", settings.log_level)
    if isinstance(settings, Settings) and (refusal := settings.refusal(CHANNELS)):
        log(__name__).error("refused_to_start", reason=refusal)
        return 2
    await_access(settings.needs, settings.kafka.brokers, (settings.http.host, settings.http.port))
    if isinstance(settings, FeedSettings):
        build_feeds(settings).run_until_signal()
    else:
        asyncio.run(build(settings).run())
    return 0


def _settings() -> Settings | EmailSettings | FeedSettings:
    """Return the settings of the process that the variable names."""
    channel = os.environ.get(CHANNEL_VARIABLE)
    if channel == FEEDS:
        return FeedSettings()
    return EmailSettings() if channel == EMAIL else Settings()


if __name__ == "__main__":
    sys.exit(main())
