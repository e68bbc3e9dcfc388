"""Run once: `python -m starling_spark.jobs.trait_verify KEY`."""

import argparse
import sys

from starling_common.telemetry.logs import configure_logs
from starling_spark.jobs.trait_verify.job import verify
from starling_spark.jobs.trait_verify.result import as_json, as_text
from starling_spark.jobs.trait_verify.settings import TraitVerifySettings
from starling_spark.jobs.trait_verify.trait import NotVerifiable
from starling_spark.jobs.trait_verify.wiring import opened


def main() -> int:
    """Return 0 if no published value is wrong, 1 if one is, 2 if the trait cannot be verified."""
    given = _words().parse_args()
    settings = TraitVerifySettings()
    configure_logs("trait-verify", settings.log_level, sys.stderr)
    with opened(settings) as context:
        try:
            found = verify(context, given.key, given.workspace, given.limit)
        except NotVerifiable as error:
            # Standard error is the log of the job, which the command line does not print.
            sys.stdout.write(f"trait_verify: {error}\n")
            return 2
    sys.stdout.write(as_json(found) if given.json else as_text(found))
    return 0 if found.is_right else 1


def _words() -> argparse.ArgumentParser:
    words = argparse.ArgumentParser(
        prog="trait_verify", description="Compare the published values of a computed trait with its history."
    )
    words.add_argument("key", metavar="KEY", help="key of the computed trait")
    words.add_argument("--workspace", help="workspace of the trait, where several have one with this key")
    words.add_argument("--limit", type=_limit, default=20, metavar="N", help="differences to print; 20 by default")
    words.add_argument("--json", action="store_true", help="print a JSON object a line")
    return words


def _limit(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number from 1 to 1000000")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
