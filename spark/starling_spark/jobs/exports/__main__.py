"""Run once: `python -m starling_spark.jobs.exports run|status|rejects`."""

import argparse
import sys
from collections.abc import Sequence
from threading import Event, Thread
from typing import Final

from starling_common.telemetry.logs import configure_logs
from starling_spark.jobs.exports.job import ExportJob
from starling_spark.jobs.exports.settings import ExportSettings
from starling_spark.jobs.exports.store import RunRow
from starling_spark.jobs.exports.wiring import export_job
from starling_spark.session.stopping import stop_at_signals
from starling_spark.text import aligned

_STOP_SECONDS: Final = 25.0
_SHOWN_RUNS: Final = 20
_HEAD: Final = ("export", "run", "state", "rows", "rejected", "at", "message")


def main() -> int:
    """Run exports, or print their runs or rejected rows; return 1 if a run has failed, and 2 for an unknown name."""
    words = argparse.ArgumentParser(prog="exports", description="Exports from the lake to sinks, as STARLING_EXPORTS defines them.")
    commands = words.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run exports; without a name all of them")
    run.add_argument("names", nargs="*", metavar="NAME")
    run.add_argument("--from-start", action="store_true", help="export all records, also those that were exported")
    status = commands.add_parser("status", help=f"print the newest {_SHOWN_RUNS} runs of each export")
    status.add_argument("names", nargs="*", metavar="NAME")
    commands.add_parser("rejects", help="print the rejected rows").add_argument("names", nargs=1, metavar="NAME")
    given = words.parse_args()
    settings = ExportSettings()
    configure_logs("exports", settings.log_level, sys.stderr)
    if unknown := [name for name in given.names if name not in settings.exports]:
        known = ", ".join(settings.exports) or "none"
        sys.stderr.write(f"no export is called {unknown[0]}: add it to STARLING_EXPORTS (now: {known})\n")
        return 2
    names = given.names or list(settings.exports)
    stopping = stop_at_signals(_STOP_SECONDS)
    with export_job(settings) as job:
        Thread(target=_stop, args=(stopping, job), name="stop-exports", daemon=True).start()
        if given.command == "status":
            runs = job.runs(names)
            sys.stdout.write(_table([row for name in names for row in [one for one in runs if one.export == name][:_SHOWN_RUNS]]))
            return 0
        if given.command == "rejects":
            rows = [("run", "key", "version", "code", "reason", "cure")]
            rows += [(str(one.run), one.key, str(one.version), one.code, one.reason, one.cure) for one in job.rejects(*names)]
            sys.stdout.write(aligned(rows))
            return 0
        ended = job.run(names, stopping.is_set, from_start=given.from_start)
        if any(ended.values()):
            job.maintain(settings.lake_orphan_hours)
    sys.stdout.write(_table([row for row in ended.values() if row is not None]))
    sys.stdout.writelines(f"{name}: no new records\n" for name, row in ended.items() if row is None)
    return 1 if any(row is not None and row.state == "failed" for row in ended.values()) else 0


def _table(rows: Sequence[RunRow]) -> str:
    cells = [
        (
            row.export,
            str(row.run),
            row.state,
            str(row.accepted),
            str(row.rejected),
            f"{row.recorded_at:%Y-%m-%d %H:%M:%S}",
            row.message or "",
        )
        for row in rows
    ]
    return aligned([_HEAD, *cells])


def _stop(stopping: Event, job: ExportJob) -> None:
    stopping.wait()
    job.stop()


if __name__ == "__main__":
    sys.exit(main())
