"""Run once: `python -m starling_spark.jobs.reprocess run --into NAME`, then `diff NAME`, `switch NAME`, or `switch --live`."""

import argparse
import re
import sys

from starling_common.telemetry.logs import configure_logs
from starling_spark.jobs.reprocess import commands
from starling_spark.jobs.reprocess.commands import Arguments
from starling_spark.jobs.reprocess.job import NotAllowed, ReprocessingNotFound
from starling_spark.jobs.reprocess.settings import ReprocessSettings
from starling_spark.jobs.reprocess.wiring import opened
from starling_spark.lakehouse.warehouse_lock import WarehouseInUse


def main() -> int:
    """Return 0 on success (`diff`: no difference), 1 for differences, 2 after an error, which is printed."""
    given = _words().parse_args()
    settings = ReprocessSettings()
    configure_logs("reprocess", settings.log_level, sys.stderr)
    try:
        with opened(settings) as place:
            text, code = given.run(place, _arguments_of(given))
    except (ReprocessingNotFound, NotAllowed, WarehouseInUse) as error:
        sys.stderr.write(f"reprocess: {error}\n")
        return 2
    sys.stdout.write(text)
    return int(code)


def _words() -> argparse.ArgumentParser:
    words = argparse.ArgumentParser(prog="reprocess", description="Corrected event tables from the raw items of the lake.")
    wanted = words.add_subparsers(dest="command", required=True)
    run = wanted.add_parser("run", help="make corrected tables, or continue an unfinished run")
    run.add_argument("--into", dest="name", type=_name, required=True, metavar="NAME", help="name of the reprocessing")
    run.add_argument(
        "--catalog", choices=("then", "now"), default="then", help="products as of the item's receipt, or the current ones"
    )
    run.add_argument("--overwrite", action="store_true", help="replace an existing reprocessing of that name")
    run.set_defaults(run=commands.run)
    for name, what, command in (
        ("diff", "compare with the events in the lake", commands.diff),
        ("remove", "delete a reprocessing", commands.remove),
    ):
        one = wanted.add_parser(name, help=what)
        one.add_argument("name", type=_name, metavar="NAME")
        one.set_defaults(run=command)
    switch = wanted.add_parser("switch", help="put corrected tables in force, or the lake's own tables")
    to = switch.add_mutually_exclusive_group(required=True)
    to.add_argument("name", nargs="?", type=_name, metavar="NAME")
    to.add_argument("--live", action="store_true", help="the lake's own tables")
    switch.set_defaults(run=commands.switch)
    wanted.add_parser("list", help="list all reprocessings").set_defaults(run=commands.listed)
    return words


def _arguments_of(given: argparse.Namespace) -> Arguments:
    own = {name: value for name, value in vars(given).items() if name in Arguments.__slots__ and value is not None}
    return Arguments(**{"name": "", **own})


def _name(text: str) -> str:
    if re.fullmatch(r"[a-z0-9][a-z0-9_]{0,30}", text) is None:
        raise argparse.ArgumentTypeError(f"{text!r}: small letters, digits and _, at most 31")
    return text


if __name__ == "__main__":
    sys.exit(main())
