"""A fault run: faults chosen by a seed, under load, then the comparison. `python -m tests.faults.run --seed 7`; exit code 1 when
anything was lost, doubled or wrong.

The seed decides which faults come, in which order in each lane, and what each of them chooses; not at which instant they fall.
"""

import argparse
import itertools
import json
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from starling_segmenter.settings import Settings
from tests.faults.catalogue import CATALOGUE, Fault
from tests.faults.findings import Findings
from tests.faults.workers import bases, complaints
from tests.faults.world import NotInjected, Scale, World, resumed, world

PAUSES: Final = {"worker": (0.3, 1.5), "broker": (12.0, 25.0), "cassandra": (10.0, 20.0), "load": (6.0, 14.0)}
"""Seconds from one fault of a lane to the next."""

_WORKERS_A_LANE: Final = 2
"""Faults of workers have a lane for every two of them: a fault takes one down, and its lane waits."""

PARTS: Final = ("kafka", "registry", "cassandra") if "cassandra" in Settings.model_fields else ("kafka", "registry")
"""Cassandra takes part once the segmenter has anything to do with it."""


@dataclass(frozen=True)
class Injected:
    """One fault as it happened. `at_seconds` from the start of the run; `what` is empty when it was not brought about."""

    fault: str
    at_seconds: float
    seconds: float
    what: str
    injected: bool


@dataclass(frozen=True)
class Report:
    seed: int
    seconds: float
    injected: Sequence[Injected]
    exits: dict[str, int]
    restored_from: dict[str, int]
    complaints: dict[str, int]
    findings: Findings

    @property
    def count(self) -> int:
        return sum(one.injected for one in self.injected)


@dataclass
class Course:
    """The faults of a run while it runs. Ends at `seconds`, or when `count` faults have been injected."""

    world: World
    seed: int
    seconds: float
    count: int
    injected: list[Injected] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)
    """What broke a lane, such as a worker that does not stop: the run ends with it, and is compared all the same."""

    def run(self, faults: Sequence[Fault]) -> None:
        self._began = time.monotonic()
        lanes = [
            threading.Thread(target=self._lane, args=(name, here, chosen), name=name)
            for lane in PAUSES
            for name, here in self._lanes(lane)
            if (chosen := [fault for fault in faults if fault.lane == lane])
        ]
        for lane in lanes:
            lane.start()
        try:
            while any(lane.is_alive() for lane in lanes) and not self._enough():
                time.sleep(0.1)
        finally:
            self.world.over.set()
            for lane in lanes:
                lane.join()

    def _lanes(self, lane: str) -> list[tuple[str, World]]:
        """Names of the lanes of a kind, each with the world as its faults may touch it."""
        if lane != "worker":
            return [(lane, self.world)]
        names = list(self.world.mine)
        parts = [tuple(names[first : first + _WORKERS_A_LANE]) for first in range(0, len(names), _WORKERS_A_LANE)]
        return [(f"worker {number}", replace(self.world, mine=part)) for number, part in enumerate(parts)]

    def _enough(self) -> bool:
        done = sum(one.injected for one in self.injected) >= self.count
        return bool(self.failures) or done or time.monotonic() - self._began > self.seconds

    def _lane(self, lane: str, here: World, faults: Sequence[Fault]) -> None:
        least, most = PAUSES[faults[0].lane]
        pauses = random.Random(f"{self.seed} {lane} pauses")
        try:
            for number, fault in enumerate(course_of(faults, self.seed, lane)):
                self.world.over.wait(pauses.uniform(least, most))
                if self.world.over.is_set():
                    return
                self.injected.append(self._inject(fault, here, random.Random(f"{self.seed} {lane} {number}")))
                self.world.load.check()
        except Exception as cause:  # noqa: BLE001 - it counts as wrong in the end
            sys.stderr.write(f"the lane {lane!r} broke: {cause!r}\n")
            self.failures.append(cause)

    def _inject(self, fault: Fault, here: World, dice: random.Random) -> Injected:
        began = time.monotonic()
        try:
            what, injected = fault.inject(here, dice), True
        except NotInjected as cause:
            what, injected = str(cause), False
        one = Injected(fault.name, round(began - self._began, 1), round(time.monotonic() - began, 1), what, injected)
        sys.stderr.write(f"{one.at_seconds:7.1f} s  {fault.name}{'' if injected else ' (not injected)'}: {what}\n")
        return one


def course_of(faults: Sequence[Fault], seed: int, lane: str) -> Iterator[Fault]:
    """Every fault of a lane once, in an order of the seed's; then endlessly by weight. The same for the same seed."""
    dice = random.Random(f"{seed} {lane}")
    once = list(faults)
    dice.shuffle(once)
    weights = [fault.weight for fault in faults]
    return itertools.chain(once, (dice.choices(faults, weights)[0] for _ in itertools.count()))


def run(directory: Path, seed: int, scale: Scale, faults: Sequence[Fault], *, seconds: float, count: int) -> Report:
    """The whole of it: start, load, faults, settle, compare."""
    began = time.monotonic()
    with world(directory, seed, scale, PARTS) as made:
        course = Course(made, seed, seconds, count)
        course.run(faults)
        findings = made.finish()
        for cause in course.failures:
            findings.found("wrong", f"a lane broke: {cause!r}")
        exits = made.workers.exits()
    codes = Counter(str(ended.code) for ended in exits)
    injected = sorted(course.injected, key=lambda one: one.at_seconds)
    restored_from = bases(directory / "workers")
    return Report(seed, round(time.monotonic() - began, 1), injected, dict(codes), restored_from, complaints(exits), findings)


def compare(directory: Path) -> Report:
    """A kept run that broke off: its workers process what is left, and then it is compared."""
    began = time.monotonic()
    with resumed(directory, PARTS) as made:
        findings = made.finish()
        exits = made.workers.exits()
    codes = Counter(str(ended.code) for ended in exits)
    restored_from = bases(directory / "workers")
    return Report(-1, round(time.monotonic() - began, 1), [], dict(codes), restored_from, complaints(exits), findings)


def available() -> list[Fault]:
    """The faults that can be injected with the parts there are."""
    return [fault for fault in CATALOGUE if fault.part is None or fault.part in PARTS]


def table(report: Report) -> str:
    """For people."""
    found = Counter(one.fault for one in report.injected if one.injected)
    missed = Counter(one.fault for one in report.injected if not one.injected)
    lines = [f"{'fault':<28}{'injected':>9}{'missed':>8}"]
    lines += [f"{name:<28}{found[name]:>9}{missed[name]:>8}" for name in sorted(found.keys() | missed.keys())]
    lines += [f"{'all':<28}{report.count:>9}{sum(missed.values()):>8}", ""]
    lines += [f"{name:<28}{count:>9}" for name, count in report.findings.counts.items()]
    lines += [
        f"ends of workers (by code): {report.exits}",
        f"partitions restored (by what from): {report.restored_from}",
        *(f"  {count} times {message}" for message, count in report.complaints.items()),
    ]
    findings = report.findings
    lines += [f"  {example}" for example in findings.examples]
    lines += [
        f"seed {report.seed}, {report.seconds:.0f} s: lost {findings.lost}, doubled {findings.doubled}, wrong {findings.wrong}"
    ]
    return "\n".join(lines)


def as_json(report: Report) -> dict[str, Any]:
    return {**asdict(report), "faults_injected": report.count, "good": report.findings.good}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--minutes", type=float, default=20.0, help="of faults; settling and comparing come on top")
    parser.add_argument("--faults", type=int, default=300, help="end earlier when so many have been injected")
    parser.add_argument("--only", nargs="*", help="names of faults, as in the catalogue")
    parser.add_argument("--rate", type=int, default=Scale.rate, help="records a second")
    parser.add_argument("--outage-seconds", type=float, default=Scale.outage_seconds)
    parser.add_argument("--keep", type=Path, help="a new directory for logs, disks and the report; else a temporary one")
    parser.add_argument("--compare", type=Path, help="no faults: finish and compare the run that was kept there")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    if given.compare is not None:
        report = compare(given.compare)
        sys.stdout.write(table(report) + "\n")
        return 0 if report.findings.good else 1
    sys.stderr.write(f"seed {given.seed}\n")
    chosen = [fault for fault in available() if given.only is None or fault.name in given.only]
    scale = Scale(rate=given.rate, outage_seconds=given.outage_seconds)
    with tempfile.TemporaryDirectory(prefix="starling-faults-") as temporary:
        directory = given.keep or Path(temporary)
        report = run(directory, given.seed, scale, chosen, seconds=given.minutes * 60, count=given.faults)
        sys.stdout.write(table(report) + "\n")
        written = Path("out/faults") / f"{given.seed}.json"
        written.parent.mkdir(parents=True, exist_ok=True)
        written.write_text(json.dumps(as_json(report), indent=1))
        sys.stdout.write(f"written to {written}\n")
    return 0 if report.findings.good else 1


if __name__ == "__main__":
    sys.exit(main())
