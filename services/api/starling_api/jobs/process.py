"""Adapter: a Spark job as a process beside the API, as in the embedded stack."""

import os
import subprocess
import sys
from collections.abc import Mapping


def command(job: str, niceness: int) -> tuple[str, ...]:
    """Return the command of a job. `job`: its package, such as `backfill`."""
    return ("nice", "-n", str(niceness), sys.executable, "-m", f"starling_spark.jobs.{job}")


class LocalProcess:
    """A `Submitter`. The job inherits the environment of the API, with another instance id."""

    def __init__(self, job: str, environment: Mapping[str, str], niceness: int) -> None:
        """`environment`: variables that differ from those of the API; `niceness`: 0 to 19."""
        self._job = job
        self._niceness = niceness
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
        environment = {**os.environ, "STARLING_INSTANCE_ID": self._job, **self._environment}
        self._process = subprocess.Popen(command(self._job, self._niceness), env=environment)

    def stop(self) -> None:
        """End the process. The job continues when the API starts again."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
