"""Run once: `python -m starling_spark.jobs.replay run --until INSTANT --into NAME`, then `… diff NAME`."""

import argparse
import re
import sys

from starling_common.telemetry.logs import configure_logs
from starling_common.time.instants import format_instant, parse_instant
from starling_spark.jobs.replay.comparison.diff import diff, diff_profiles
from starling_spark.jobs.replay.comparison.memberships import table
from starling_spark.jobs.replay.comparison.profiles import line
from starling_spark.jobs.replay.job import InTheFuture, ReplayNotFound, replay
from starling_spark.jobs.replay.place import ReplayContext
from starling_spark.jobs.replay.settings import ReplaySettings
from starling_spark.jobs.replay.wiring import opened


def main() -> int:
    """Return 0 on success (`diff`: both sides are equal), 1 when they differ, 2 for an unknown replay or a future instant."""
    given = _words().parse_args()
    settings = ReplaySettings()
    configure_logs("replay", settings.log_level, sys.stderr)
    with opened(settings) as context:
        try:
            return int(given.run(context, given))
        except (ReplayNotFound, InTheFuture) as error:
            sys.stderr.write(f"replay: {error}\n")
            return 2


def _run(context: ReplayContext, given: argparse.Namespace) -> int:
    made = replay(context, given.into, given.until, overwrite=given.overwrite)
    left_out = f", {made.unreadable} records could not be read" if made.unreadable else ""
    left_out += f", {made.refused} records made the code raise" if made.refused else ""
    sys.stdout.write(f"{made.name}: {made.people} people as of {format_instant(made.until_ms)}{left_out}\n")
    return 0


def _diff(context: ReplayContext, given: argparse.Namespace) -> int:
    made, found = diff(context, given.name)
    sys.stdout.write(f"{given.name} as of {format_instant(made.until_ms)}\n{table(found, made.segments)}")
    is_equal = all(one.is_none for one in found)
    if not given.memberships_only:
        profiles = diff_profiles(context, made)
        sys.stdout.write(line(profiles))
        is_equal = is_equal and profiles.is_none
    return 0 if is_equal else 1


def _words() -> argparse.ArgumentParser:
    words = argparse.ArgumentParser(prog="replay", description="Memberships as of an instant, computed from history.")
    commands = words.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="compute a replay")
    run.add_argument("--until", type=parse_instant, required=True, metavar="INSTANT", help="instant of stream time, in ISO 8601")
    run.add_argument("--into", type=_name, required=True, metavar="NAME", help="name of the replay")
    run.add_argument("--overwrite", action="store_true", help="replace an existing replay of that name")
    run.set_defaults(run=_run)
    diff_words = commands.add_parser("diff", help="compare a replay with the live memberships")
    diff_words.add_argument("name", type=_name, metavar="NAME")
    diff_words.add_argument("--memberships-only", action="store_true", help="skip the profiles, which take as long as a replay")
    diff_words.set_defaults(run=_diff)
    return words


def _name(text: str) -> str:
    if re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,62}", text) is None:
        raise argparse.ArgumentTypeError(f"{text!r}: small letters, digits, - and _, at most 63")
    return text


if __name__ == "__main__":
    sys.exit(main())
