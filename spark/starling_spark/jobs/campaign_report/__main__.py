"""Run once: `python -m starling_spark.jobs.campaign_report --out URI`."""

import argparse
import sys

from starling_common.telemetry.logs import configure_logs
from starling_spark.jobs.campaign_report.job import ReportRequest
from starling_spark.jobs.campaign_report.settings import CampaignReportSettings
from starling_spark.jobs.campaign_report.wiring import run_report


def main() -> int:
    """Write one report; return 0 when its files are complete."""
    words = argparse.ArgumentParser(prog="campaign_report", description="Funnels and lifts of all campaigns, as Parquet.")
    words.add_argument("--out", required=True, metavar="URI", help="a directory for Parquet: funnel, lift")
    words.add_argument("--overwrite", action="store_true", help="replace the content of --out")
    given = words.parse_args()
    settings = CampaignReportSettings()
    configure_logs("campaign-report", settings.log_level, sys.stderr)
    counts = run_report(settings, ReportRequest(given.out, given.overwrite))
    sys.stdout.write(" ".join(f"{part}={rows}" for part, rows in counts.items()) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
