"""The speed of delivery relative to bare loops, and its latencies: prints a table, writes benchmarks/results/delivery.json.

    python benchmarks/delivery.py [--only kit,webhook,broadcast] [--members 1000000] [--small] [--write] …

Every part starts what it needs and deletes it afterwards: broker and registry, for `broadcast` Cassandra too, for `mail` the whole
platform. Each figure is the median of three rounds. benchmarks/README.md explains the parts.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import messenger
import psutil
from common.bench import keep, kept
from delivery_parts import broadcast, decisions, latencies, rates
from delivery_parts.goals import table

SMALL = {
    "changes": 20_000, "messages": 10_000, "requests": 6_000, "mails": 6_000, "records": 2_000, "decisions": 500, "seconds": 2,
    "mail_seconds": 2, "members": 2_000, "rounds": 1,
}  # fmt: skip
"""Loads for seconds instead of minutes: a check that everything runs, without meaningful figures."""

PARTS: Mapping[str, Callable[[argparse.Namespace, Path], dict[str, Any]]] = {
    "kit": lambda options, directory: rates.feed_kit(directory, options.changes, options.rounds),
    "message_kit": lambda options, directory: rates.message_kit(directory, options.messages, options.rounds),
    "webhook": lambda options, directory: rates.webhook(directory, options.requests, options.rounds),
    "email": lambda options, directory: rates.email(directory, options.mails, options.rounds),
    "messenger": lambda options, _directory: messenger.measured(options.records),
    "decide": lambda options, _directory: decisions.measured(options.decisions, options.rounds),
    "feed": lambda options, directory: latencies.feed(directory, options.seconds, options.rounds),
    "mail": lambda options, directory: latencies.mail(directory, options.mail_seconds, options.rounds),
    "hanging": lambda options, directory: latencies.beside_hanging(directory, options.seconds, options.rounds),
    "broadcast": lambda options, directory: broadcast.measured(directory, options.members, options.rounds),
}


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help="some of the parts, comma separated")
    parser.add_argument("--small", action="store_true", help="every part in a few minutes; its figures have no meaning")
    parser.add_argument("--changes", type=int, default=400_000, help="membership changes of `kit`")
    parser.add_argument("--messages", type=int, default=200_000, help="requests of `message_kit`")
    parser.add_argument("--requests", type=int, default=40_000, help="membership changes of `webhook`")
    parser.add_argument("--mails", type=int, default=60_000, help="mails of `email`")
    parser.add_argument("--records", type=int, default=40_000, help="records of `messenger`")
    parser.add_argument("--decisions", type=int, default=5_000, help="decisions of a round of `decide`")
    parser.add_argument("--seconds", type=int, default=20, help="of a round of `feed` and `hanging`")
    parser.add_argument("--mail-seconds", type=int, default=40, help="of a round of `mail`")
    parser.add_argument(
        "--members",
        type=int,
        default=50_000,
        help=f"members of `broadcast`; more than {broadcast.MOST_ROUNDS_OF:,} have one round",
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="a directory for logs and state, kept until the next run")
    parser.add_argument("--write", action="store_true", help="keep the results in benchmarks/results/delivery.json")
    return parser


def main() -> int:
    # SIGTERM also ends the processes and the stack.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = arguments()
    if "--small" in sys.argv:
        parser.set_defaults(**SMALL)
    options = parser.parse_args()
    names = options.only.split(",")
    if unknown := [name for name in names if name not in PARTS]:
        parser.error(f"--only: {', '.join(unknown)}: no such part; there are: {', '.join(PARTS)}")
    found: dict[str, Any] = kept("delivery") if options.write else {}
    with tempfile.TemporaryDirectory() as temporary:
        directory = (options.keep or Path(temporary)).absolute()
        for name in names:
            print(f"{name} ...", file=sys.stderr)
            shutil.rmtree(directory / name, ignore_errors=True)
            (directory / name).mkdir(parents=True)
            measured = PARTS[name](options, directory / name)
            load = {f"load_average_{minutes}m": round(os.getloadavg()[index], 1) for index, minutes in enumerate((1, 5))}
            setting = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "cores": psutil.cpu_count()}
            found[name] = {**setting, **load, **measured}
            if options.write:
                # Stored after each part, so that an error in the last part loses no figures.
                keep("delivery", found)
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
