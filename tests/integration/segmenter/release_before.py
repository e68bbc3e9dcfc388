"""`python -m tests.integration.segmenter.release_before`: a segmenter that neither writes nor reads the newest format."""

import sys
from dataclasses import replace

from starling_common.telemetry.logs import configure_logs
from starling_segmenter.settings import Settings
from starling_segmenter.wiring import open_service
from starling_segments import FORMAT_BEFORE
from starling_stream.worker.arenas import share_arenas
from starling_stream.worker.run import run_service
from tests.unit.segmenter.release_before import release_before


def main() -> int:
    share_arenas()
    settings = Settings().model_copy(update={"state_format": FORMAT_BEFORE})
    configure_logs("segmenter", settings.log_level)
    with open_service(settings) as service:
        return run_service(replace(service, processor=release_before(service.processor)), settings)


if __name__ == "__main__":
    sys.exit(main())
