"""Entry point for spark-submit and of the image: `submit.py JOB [WORDS…]` runs `python -m starling_spark.jobs.JOB WORDS…`.

The job is the driver. With `STARLING_SPARK_MASTER` empty it uses the master of the submission. `executor` and `driver …` are the
arguments of the pods that Spark creates on Kubernetes: the process becomes an executor, or the driver of a submission.
"""

import os
import runpy
import sys
from pkgutil import iter_modules

from starling_spark import jobs
from starling_spark.session.kubernetes import DRIVER, EXECUTOR, NotADriver, NotAnExecutor, executor_command, submitted_driver


def main(words: list[str]) -> None:
    """Run the job, or become an executor. Raises: SystemExit with the exit code of the job, or with the usage."""
    if words == [EXECUTOR]:
        _become_executor()
    if words[:1] == [DRIVER]:
        words = _submitted(words[1:])
    if not words:
        raise SystemExit(f"usage: submit.py JOB [WORDS…] ({', '.join(sorted(one.name for one in iter_modules(jobs.__path__)))})")
    sys.argv = [f"starling_spark.jobs.{words[0]}", *words[1:]]
    runpy.run_module(f"starling_spark.jobs.{words[0]}", run_name="__main__", alter_sys=True)


def _become_executor() -> None:
    try:
        command = executor_command(os.environ)
    except NotAnExecutor as error:
        raise SystemExit(f"{EXECUTOR}: {error}") from None
    os.execv(command[0], command)  # noqa: S606 - no shell


def _submitted(words: list[str]) -> list[str]:
    """Return the words of the job of a submission, with its variables in the environment."""
    try:
        job, variables = submitted_driver(words, os.environ)
    except NotADriver as error:
        raise SystemExit(f"{DRIVER}: {error}") from None
    os.environ.update(variables)
    return job


if __name__ == "__main__":
    main(sys.argv[1:])
