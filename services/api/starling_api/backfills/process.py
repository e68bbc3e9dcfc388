"""Adapter: the backfill as a process beside the API, as in the embedded stack."""

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Final

# The lowest priority gives the live services precedence. At a niceness of 10 the job reduced the segmenter's rate by a fifth.
COMMAND: Final = ("nice", "-n", "19", sys.executable, "-m", "starling_spark.jobs.backfill")


class LocalProcess:
    """A `Submitter`. The job inherits the environment of the API, with another instance id."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """`environment`: variables that differ from those of the API."""
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    def is_running(self) -> bool:
        """Return whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def has_failed(self) -> bool:
        """Return whether the process ended with another exit code than 0."""
        return self._process is not None and self._process.poll() not in {None, 0}

    def start(self) -> None:
        """Start the process. Raises: OSError."""
        environment = {**os.environ, "STARLING_INSTANCE_ID": "backfill", **self._environment}
        self._process = subprocess.Popen(COMMAND, env=environment)

    def stop(self) -> None:
        """End the process. The run continues when the API starts again."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
