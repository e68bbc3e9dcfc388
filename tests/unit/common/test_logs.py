"""The log record of an uncaught exception."""

import json
import subprocess
import sys

PROGRAM = """
from starling_common.telemetry.logs import configure_logs
configure_logs("tests", "INFO")
{last}
"""


def ended(last: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", PROGRAM.format(last=last)], capture_output=True, text=True, check=False)


def test_it_is_one_record_with_the_cause_and_where_it_came_from() -> None:
    made = ended("raise ConnectionError('connection refused')")
    (line,) = made.stdout.splitlines()
    record = json.loads(line)
    assert made.returncode == 1
    assert made.stderr == ""
    assert (record["event"], record["level"], record["service"]) == ("ended_by", "error", "tests")
    assert record["error"] == "ConnectionError: connection refused"
    assert record["exception"].startswith("Traceback")
    assert record["exception"].endswith("ConnectionError: connection refused")


def test_an_interrupt_is_none() -> None:
    made = ended("raise KeyboardInterrupt")
    assert made.stdout == ""
    assert made.stderr.rstrip().endswith("KeyboardInterrupt")
