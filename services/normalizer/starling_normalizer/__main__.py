"""`python -m starling_normalizer`: start, run, stop."""

import sys

from starling_common.logs import configure_logs
from starling_normalizer.settings import Settings
from starling_normalizer.wiring import built
from starling_stream.worker.arenas import share_arenas
from starling_stream.worker.run import run_service


def main() -> int:
    """Run until told to stop; the exit code is the stream layer's."""
    share_arenas()  # what is built below starts threads
    settings = Settings()
    configure_logs("normalizer", settings.log_level)
    with built(settings) as service:
        return run_service(service, settings)


if __name__ == "__main__":
    sys.exit(main())
