"""Entry point for spark-submit and of the image: `submit.py JOB [WORDS…]` runs `python -m starling_spark.jobs.JOB WORDS…`.

The job is the driver. With `STARLING_SPARK_MASTER` empty it uses the master of the submission. With `executor`, the argument of the
pods that Spark creates on Kubernetes, the process becomes an executor.
"""

import os
import runpy
import sys

from starling_spark.session.kubernetes import EXECUTOR, NotAnExecutor, executor_command


def main(words: list[str]) -> None:
    """Run the job, or become an executor. Raises: SystemExit with the exit code of the job, or with the usage."""
    if words == [EXECUTOR]:
        _become_executor()
    if not words:
        raise SystemExit(
            "usage: submit.py JOB [WORDS…] "
            "(lake, lake_upkeep, profiles, views, backfill, imports, audience_report, replay, reprocess)"
        )
    sys.argv = [f"starling_spark.jobs.{words[0]}", *words[1:]]
    runpy.run_module(f"starling_spark.jobs.{words[0]}", run_name="__main__", alter_sys=True)


def _become_executor() -> None:
    try:
        command = executor_command(os.environ)
    except NotAnExecutor as error:
        raise SystemExit(f"{EXECUTOR}: {error}") from None
    os.execv(command[0], command)  # noqa: S606 - no shell


if __name__ == "__main__":
    main(sys.argv[1:])
