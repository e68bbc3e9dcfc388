"""Adapter: the backfill as a process beside the API, as in the embedded stack."""

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Final

# Behind the live traffic: what is left of the processors is its. At a niceness of 10 it took a fifth of the segmenter's rate.
COMMAND: Final = ("nice", "-n", "19", sys.executable, "-m", "starling_spark.jobs.backfill")


class LocalProcess:
    """A `Submitter`. The job goes by the API's own environment, with another name and port."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """`environment`: what is different for the job."""
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    def is_running(self) -> bool:
        """Whether it is at work."""
        return self._process is not None and self._process.poll() is None

    def has_failed(self) -> bool:
        """Whether it ended with another code than 0."""
        return self._process is not None and self._process.poll() not in {None, 0}

    def start(self) -> None:
        """Start it. Raises: OSError."""
        environment = {**os.environ, "STARLING_INSTANCE_ID": "backfill", **self._environment}
        self._process = subprocess.Popen(COMMAND, env=environment)

    def stop(self) -> None:
        """It is gone on with when the API is back."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
