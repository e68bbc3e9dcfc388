"""`python -m starling_segmenter`: start, run, stop."""

import sys

from starling_common.logs import configure_logs
from starling_segmenter.settings import Settings
from starling_segmenter.wiring import built
from starling_stream.worker.arenas import share_arenas
from starling_stream.worker.run import run_service


def main() -> int:
    """Run until told to stop; the exit code says how it ended."""
    share_arenas()  # what is built below starts threads
    settings = Settings()
    configure_logs("segmenter", settings.log_level)
    with built(settings) as service:
        return run_service(service, settings)


if __name__ == "__main__":
    sys.exit(main())
