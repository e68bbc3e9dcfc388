"""Run once: `python -m starling_spark.jobs.audience_report [--until INSTANT] [--out URI]`."""

import argparse
import sys

from starling_common.settings import Clock
from starling_common.telemetry.logs import configure_logs
from starling_common.time.instants import parse_instant, wall_clock_ms
from starling_spark.jobs.audience_report.job import ReportRequest
from starling_spark.jobs.audience_report.settings import AudienceReportSettings
from starling_spark.jobs.audience_report.wiring import run_report


def main() -> int:
    """Write one report; return 0 when the API serves it, 2 when --until is missing."""
    words = argparse.ArgumentParser(prog="audience_report", description="Size, entries, exits, retention and overlap of segments.")
    words.add_argument(
        "--until",
        type=parse_instant,
        metavar="INSTANT",
        help="instant of stream time, in ISO 8601; default: now, which only the wall clock has",
    )
    words.add_argument("--out", metavar="URI", help="a directory for Parquet: days, retention, overlap")
    words.add_argument("--overwrite", action="store_true", help="replace the content of --out")
    given = words.parse_args()
    settings = AudienceReportSettings()
    configure_logs("audience-report", settings.log_level, sys.stderr)
    if given.until is None and settings.clock is not Clock.WALL:
        sys.stderr.write("audience_report: --until: set the end of the report, because STARLING_CLOCK is not wall\n")
        return 2
    until_ms = wall_clock_ms() if given.until is None else given.until
    counts = run_report(settings, ReportRequest(until_ms, given.out, given.overwrite))
    sys.stdout.write(" ".join(f"{part}={rows}" for part, rows in counts.items()) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
