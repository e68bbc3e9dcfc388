"""Attacks every door of a platform of its own with generated input, beside a workspace that behaves well: `make fuzz`.

`python -m tests.fuzz.run --seconds 1500 --seed 7`. The table is printed and written to `out/fuzz/<seed>.json`; failing inputs are
saved beside it. `--door NAME --number N` repeats one input of a seed. Exit code 1 on any failure.
"""

import argparse
import importlib.util
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx

from starling_cli.settle.settle import NotSettled
from tests.conftest import ROOT
from tests.fuzz.cursors import Cursors
from tests.fuzz.definitions import Definitions
from tests.fuzz.files import Files
from tests.fuzz.headers import Headers
from tests.fuzz.ingest import Ingest
from tests.fuzz.lists import Lists
from tests.fuzz.records import TOPICS, Records
from tests.fuzz.tally import Attack, Door, Tally, as_json, table
from tests.fuzz.world import Bystander, World, running

OUT: Final = ROOT / "out" / "fuzz"
IN_PROCESS: Final = ("chain", "rules", "texts", "guided")
SETTLE_SECONDS: Final = 240.0
_END_SECONDS: Final = 60.0
_IN_TRANSIT: Final = 5
"""Records of the bystander that are on their way at any moment."""


@dataclass
class Report:
    """What a run found. `wrong`: failures that belong to no single input."""

    seed: int
    seconds: float
    tallies: list[Tally]
    wrong: list[str] = field(default_factory=list)
    bystander_ms: dict[str, float] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        """Return whether nothing failed."""
        return not self.wrong and not any(tally.failures for tally in self.tallies)

    def __str__(self) -> str:
        """Return the table and the failures."""
        lines = [table(self.tallies), "", f"seed {self.seed}, {self.seconds:.0f} s, bystander: {json.dumps(self.bystander_ms)}"]
        lines += [f"WRONG {text}" for text in self.wrong]
        lines += [f"{tally.door}: {reason}" for tally in self.tallies for reason in tally.reasons]
        return "\n".join(lines)


@contextmanager
def doors(world: World, seed: int) -> Iterator[list[Door]]:
    """Yield the doors of a running platform, and close their connections afterwards."""
    at, letters = world.at, world.letters()
    mark = f"fz-{seed}-{time.time_ns():x}-"
    stages = [name for name in TOPICS if name != "profiles" or world.with_spark]
    with (
        httpx.Client(base_url=at.ingest_url, timeout=30, trust_env=False) as ingest,
        httpx.Client(base_url=at.api_url, headers={"Authorization": f"Bearer {world.token}"}, timeout=60, trust_env=False) as api,
    ):
        yield [
            Ingest(ingest, world.write_key, mark, letters),
            *(Records(name, at.kafka, at.registry_url, letters, world.stages()) for name in stages),
            Definitions(api),
            Lists(api),
            Cursors(api),
            Headers((at.ingest_url, at.api_url), (world.write_key, world.token, "unknown")),
            Files(at.data_dir),
        ]


def attack_all(
    world: World, seed: int, seconds: float, directory: Path, in_process: Sequence[str] = IN_PROCESS, *, stalls: bool = True
) -> Report:
    """Attack all doors at the same time, and account for every input. `stalls`: a slow event of the bystander is a failure."""
    report = Report(seed, seconds, [])
    before = world.processes()
    bystander = Bystander(world, rate=1.0)
    bystander.wait_started()
    with doors(world, seed) as opened:
        attacks = [Attack(door, seed, directory) for door in opened]
        inside = _start_inside(in_process, seed, seconds, directory)
        _run(attacks, seconds, report)
        report.tallies += [attack.tally for attack in attacks] + _end_inside(inside, report)
        try:
            world.drain(SETTLE_SECONDS, _IN_TRANSIT)
        except NotSettled as error:
            report.wrong.append(f"the pipeline is stuck: {error}")
        report.wrong += bystander.stop(stalls=stalls)
        _close(world, attacks, report)
    times = sorted(sample.ms for sample in bystander.samples if sample.ms is not None)
    if times:
        report.bystander_ms = {"events": len(times), "p50": round(times[len(times) // 2]), "max": round(times[-1])}
    report.wrong += changed(before, world.processes())
    return report


def _run(attacks: Sequence[Attack], seconds: float, report: Report) -> None:
    """Return when the time is up and the broker has every record."""
    until = time.monotonic() + seconds
    threads = [threading.Thread(target=attack.run, args=(until,), name=attack.door.name, daemon=True) for attack in attacks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + SETTLE_SECONDS)
        if thread.is_alive():
            report.wrong.append(f"{thread.name}: an input has no answer after {SETTLE_SECONDS:g} s")
    for attack in attacks:
        if isinstance(attack.door, Records):
            attack.door.flush()


def _close(world: World, attacks: Sequence[Attack], report: Report) -> None:
    try:
        world.settle(SETTLE_SECONDS)
    except NotSettled as error:
        report.wrong.append(f"the pipeline is stuck: {error}")
        return
    for attack in attacks:
        attack.close_account()


def changed(before: Mapping[str, tuple[int | None, int]], after: Mapping[str, tuple[int | None, int]]) -> list[str]:
    """Return the processes that ended or were restarted meanwhile."""
    return [
        f"the process of {name} changed: {before[name]} before, {after.get(name)} after"
        for name in before
        if after.get(name) != before[name]
    ]


def _start_inside(names: Sequence[str], seed: int, seconds: float, directory: Path) -> dict[Path, subprocess.Popen[bytes]]:
    directory.mkdir(parents=True, exist_ok=True)
    started = {}
    for name in names:
        if name == "guided" and importlib.util.find_spec("atheris") is None:
            continue
        report = directory / f"in-process-{name}-{seed}.json"
        report.unlink(missing_ok=True)
        command = [sys.executable, "-m", "tests.fuzz.in_process", "--door", name, "--seed", str(seed), "--seconds", str(seconds)]
        with (directory / f"in-process-{name}.log").open("wb") as log:
            started[report] = subprocess.Popen([*command, "--report", str(report)], stdout=log, stderr=log)
    return started


def _end_inside(started: Mapping[Path, "subprocess.Popen[bytes]"], report: Report) -> list[Tally]:
    found = []
    for path, process in started.items():
        try:
            code = process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        if code or not path.exists():
            report.wrong.append(f"{path.stem} ended with {code}, see its log")
        else:
            found.append(Tally(**json.loads(path.read_text())))
    return found


def again(world: World, seed: int, name: str, number: int) -> Report:
    """Send one input again."""
    with doors(world, seed) as opened:
        [door] = [door for door in opened if door.name == name]
        attack, report = Attack(door, seed, OUT), Report(seed, 0, [])
        before = world.processes()
        attack.once(number)
        if isinstance(door, Records):
            door.flush()
        report.tallies.append(attack.tally)
        _close(world, [attack], report)
    report.wrong += changed(before, world.processes())
    return report


def main() -> int:
    """Attack all doors, or repeat one input."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seconds", type=float, default=1_200)
    arguments.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    arguments.add_argument("--no-spark", action="store_true", help="without the job of computed traits")
    arguments.add_argument("--door", help="repeat one input: the name of its door")
    arguments.add_argument("--number", type=int, default=0, help="repeat one input: its number")
    parsed = arguments.parse_args()
    sys.stderr.write(f"fuzz: seed {parsed.seed}\n")
    with running(OUT / "instance", with_spark=not parsed.no_spark) as world:
        if parsed.door:
            report = again(world, parsed.seed, parsed.door, parsed.number)
        else:
            report = attack_all(world, parsed.seed, parsed.seconds, OUT)
    document: dict[str, Any] = {"seed": report.seed, "seconds": report.seconds, "doors": as_json(report.tallies)}
    document |= {"wrong": report.wrong, "bystander_ms": report.bystander_ms}
    (OUT / f"{report.seed}.json").write_text(json.dumps(document, indent=1))
    sys.stdout.write(f"{report}\n")
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
