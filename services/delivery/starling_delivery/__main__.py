"""`python -m starling_delivery`: start, run, stop."""

import asyncio
import sys

from starling_common.logs import configure_logs
from starling_delivery.settings import Settings
from starling_delivery.wiring import build


def main() -> int:
    """Serve one channel until told to stop."""
    settings = Settings()
    configure_logs(f"delivery-{settings.channel}", settings.log_level)
    asyncio.run(build(settings).run())
    return 0


if __name__ == "__main__":
    sys.exit(main())
