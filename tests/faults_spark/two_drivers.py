"""A driver of the job `profiles` is suspended in a micro-batch, replaced, and goes on, many times:
`python -m tests.faults_spark.two_drivers [--count 20]`. Exit code 1 names the differences.
"""

import argparse
import sys
import tempfile
import traceback
from pathlib import Path

from starling_local.testing import embedded
from tests.faults_spark.lake_and_views import report
from tests.integration.spark.instance import Instance
from tests.integration.spark.two_drivers import assert_that_a_suspended_driver_changes_no_profile


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20)
    asked, wrong = parser.parse_args(), 0
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp") as directory,
        embedded({"kafka", "registry"}, Path(directory) / "stack") as found,
    ):
        for number in range(asked.count):
            home = Path(directory) / str(number)
            home.mkdir()
            instance = Instance(found.kafka, found.registry_url, home)
            instance.deploy()
            try:
                assert_that_a_suspended_driver_changes_no_profile(instance)
                report(f"{number + 1} of {asked.count}: no profile has changed")
            except AssertionError:
                report(f"{number + 1} of {asked.count}: {traceback.format_exc()}")
                wrong += 1
            finally:
                instance.remove()
    report(f"{asked.count} drivers, {wrong} failures")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
