"""Faults of a cluster of Spark while the job `profiles`, and then `lake`, runs on it.

`--together N` lets up to N faults of different kinds happen at once.

In the end its values or rows must equal those of one fold over everything that was sent. The checkpoint is in an object store, and
the broker requires passwords. Run as root, so that hosts can be cut off:
python -m tests.spark_cluster.faults [--job profiles] [--job lake] [--count 20] [--together 1] [--seed 1] [--only executor,cut=3]
    [--minutes 60]
"""

import argparse
import json
import math
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Final

from starling_local.spark_cluster import SparkWorker
from tests.spark_cluster.kinds import AWAY_SECONDS, FAULTS, HOSTS, LINK_OF, Fault, waves
from tests.spark_cluster.loads import Lake, Load, Traits, catch_up, report, started_again
from tests.spark_cluster.rig import WORKERS, Rig, rig

_LANES: Final = ThreadPoolExecutor()
"""Never shut down: a process that a fault starts ends with the thread that has started it."""


class Results:
    """What the faults led to: seconds until the job has processed everything that was sent meanwhile, and starts of the job.

    Faults that happened at once have the same seconds and starts. One of a connection that hit nothing does not count.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.restarts: dict[str, int] = defaultdict(int)

    def add(self, wave: Sequence[str], seconds: float, starts: int) -> None:
        """Add what faults have led to that happened at once."""
        for name in wave:
            self.seconds[name].append(seconds)
            self.restarts[name] += starts

    def table(self) -> str:
        """Return the table."""
        rows = ["fault | times | median s | longest s | starts of the job"]
        for name, seconds in self.seconds.items():
            rows.append(f"{name} | {len(seconds)} | {statistics.median(seconds):.0f} | {max(seconds):.0f} | {self.restarts[name]}")
        return "\n".join(rows)


def counts_of(words: str) -> dict[str, int | None]:
    """Parse `executor,cut=3`: a count of each name, or None."""
    pairs = [word.partition("=") for word in words.split(",")]
    return {name: int(count) if count else None for name, _, count in pairs}


def in_turn(counts: Mapping[str, int], dice: random.Random) -> list[str]:
    """Return each name so often, in random order, with the times of each one spread evenly."""
    places = [((number + dice.random()) / count, name) for name, count in counts.items() for number in range(count)]
    return [name for _, name in sorted(places)]


def happen(load: Load, faults: Sequence[Fault], workers: Sequence[SparkWorker], dice: random.Random) -> int:
    """Let faults happen at once while records are sent, each at a random instant. `workers`: of each fault.

    Returns how often the job ended meanwhile and was started.
    """
    longest_wait_seconds = 3 if len(faults) == 1 else AWAY_SECONDS

    def one(fault: Fault, worker: SparkWorker, wait_seconds: float, count: int) -> None:
        time.sleep(wait_seconds)  # sleep: a random instant of the fault
        with fault(load, worker):
            load.more(count)

    given = [(*pair, dice.uniform(0, longest_wait_seconds), dice.randrange(20, 80)) for pair in zip(faults, workers, strict=True)]
    running, starts = [_LANES.submit(one, *words) for words in given], 0
    while wait(running, timeout=1).not_done:
        starts += started_again(load)
    for lane in running:
        lane.result()
    return starts


def chosen_workers(names: Sequence[str], cluster: Rig, dice: random.Random) -> list[SparkWorker]:
    """Return a worker for each fault. Those of hosts have different ones, with an executor as far as there are any."""
    busy = cluster.busy_workers()
    idle = [one for one in cluster.cluster.workers if one not in busy]
    free = iter((*dice.sample(busy, len(busy)), *dice.sample(idle, len(idle))))
    return [next(free) if name in HOSTS else dice.choice(busy or idle) for name in names]


def hits(cluster: Rig) -> dict[str, int]:
    """Return the number of pieces of data or connections that faults have hit so far, by name of the connection."""
    return {name: getattr(cluster.links, name).hits for name in set(LINK_OF.values())}


def suffer(job: str, cluster: Rig, directory: Path, given: Sequence[Sequence[str]], seed: int, minutes: float) -> int:
    """Let waves of faults happen, one after the other, for this time. Return the number of differences at the end."""
    dice, results, end = random.Random(seed), Results(), time.monotonic() + 60 * minutes
    load: Load = (Traits if job == "profiles" else Lake)(cluster, directory, random.Random(seed))
    try:
        load.begin()
        catch_up(load)
        for number, wave in enumerate(given):
            if time.monotonic() > end:
                report(f"{len(given) - number} waves are left out: {minutes:.0f} minutes are over")
                break
            report(f"{number + 1} of {len(given)}: {', '.join(wave)}")
            load.more(dice.randrange(20, 80))
            before = hits(cluster)
            starts = happen(load, [FAULTS[job][name] for name in wave], chosen_workers(wave, cluster, dice), dice)
            begin = time.monotonic()
            starts += catch_up(load)
            seconds, after = time.monotonic() - begin, hits(cluster)
            missed = [name for name in wave if name in LINK_OF and before[LINK_OF[name]] == after[LINK_OF[name]]]
            if missed:
                report(f"  nothing was hit by {', '.join(missed)}")
            results.add([name for name in wave if name not in missed], seconds, starts)
            cluster.cluster.wait_for_workers(WORKERS)
        found = load.differences()
    except BaseException:
        report(load.log_tail())
        raise
    finally:
        load.remove()
    for one in found[:20]:
        report(f"different: {one}")
    report(f"{job}, seed {seed}: {len(found)} differences\n{results.table()}")
    return len(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", choices=FAULTS, action="append", help="both")
    parser.add_argument("--count", type=int, default=20, help="of each fault (20)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--minutes", type=float, default=math.inf, help="of the faults of a job (no limit)")
    parser.add_argument("--together", type=int, default=1, help="faults that happen at once (1)")
    parser.add_argument(
        "--only",
        type=counts_of,
        help="names, comma separated, each with a count of its own as NAME=COUNT; a job is left out that has none of them",
    )
    asked = parser.parse_args()
    chosen = asked.only or dict.fromkeys((name for names in FAULTS.values() for name in names), None)
    kinds = {job: {name: chosen[name] or asked.count for name in FAULTS[job] if name in chosen} for job in asked.job or FAULTS}
    if unknown := set(asked.only or ()).difference(*kinds.values()):
        parser.error(f"no fault is called {', '.join(sorted(unknown))}: {json.dumps({job: list(FAULTS[job]) for job in kinds})}")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory, rig(Path(directory)) as cluster:
        if not cluster.cluster.network.is_isolated and "cut" in {name for names in kinds.values() for name in names}:
            parser.error("hosts can be cut off only as root: leave `cut` out, or run as root")
        found = 0
        for job, counts in kinds.items():
            names = in_turn(counts, random.Random(asked.seed))
            (Path(directory) / job).mkdir()
            given = list(waves(names, asked.together))
            found += suffer(job, cluster, Path(directory) / job, given, asked.seed, asked.minutes) if names else 0
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
