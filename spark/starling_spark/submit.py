"""Entry point for spark-submit: `submit.py JOB [WORDS…]` runs `python -m starling_spark.jobs.JOB WORDS…` as the driver.

With `STARLING_SPARK_MASTER` empty the job uses the master of the submission.
"""

import runpy
import sys


def main(words: list[str]) -> None:
    """Run the job. Raises: SystemExit with the exit code of the job, or with the usage."""
    if not words:
        raise SystemExit(
            "usage: submit.py JOB [WORDS…] "
            "(lake, lake_upkeep, profiles, views, backfill, imports, audience_report, replay, reprocess)"
        )
    sys.argv = [f"starling_spark.jobs.{words[0]}", *words[1:]]
    runpy.run_module(f"starling_spark.jobs.{words[0]}", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
