"""Adapter: profiles of the Python services while a block runs, with py-spy, as collapsed stacks."""

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from whole.meters import Meters

SERVICES = ("ingest", "normalizer", "segmenter", "projector", "delivery", "api")


@contextmanager
def profiles(meters: Meters, directory: Path, *, enabled: bool) -> Iterator[None]:
    """Write `directory/<service>-<pid>.txt` (stack and number of samples a line) for the duration of the block."""
    running: list[subprocess.Popen[bytes]] = []
    if enabled:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        for service in SERVICES:
            for pid in meters.pids(service):
                out = directory / f"{service}-{pid}.txt"
                command = ["py-spy", "record", "--pid", str(pid), "--format", "raw", "--rate", "50", "--duration", "3600"]
                running.append(
                    subprocess.Popen(
                        [*command, "--nonblocking", "--output", str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                    )
                )
    try:
        yield
    finally:
        for process in running:
            process.send_signal(signal.SIGINT)
        for process in running:
            process.wait(60)
