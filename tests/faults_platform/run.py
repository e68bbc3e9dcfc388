"""Faults of the whole platform under load, then the judgement: `python -m tests.faults_platform.run --seed 7`.

Exit code 1 when anything was lost, doubled or wrong, or a part was not ready within 60 s of the end of its cause. The seed decides
the faults, their order and the items; not the instants.
"""

import argparse
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final

import httpx

from starling_cli.api_client import ApiRefused
from starling_cli.commands.common import pipeline_of
from starling_cli.settle.settle import settle
from starling_cli.stream_clock import StreamClock
from starling_common.values import EpochMs
from starling_demo.receiver import Receiver
from starling_local.instance import Instance
from starling_local.stack.parts.services import API_TOKEN
from starling_local.testing import Addresses, embedded
from tests.faults.segments import WHERES, document
from tests.faults.verdict import Verdict
from tests.faults_platform.judging import Judge
from tests.faults_platform.processes import Durations, Injected, Processes
from tests.faults_platform.schedule import Fault, schedule
from tests.faults_platform.traffic import Traffic

SERVICES: Final = ("ingest", "normalizer-0", "segmenter-0", "projector-0", "api", "delivery-0")
READY_SECONDS: Final = 60.0
"""The bound on the time until a part is ready again, from the end of its cause."""
SUBSCRIBED: Final = "buyers"
"""The segment of the webhook."""
_SECRET: Final = "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldY"
_YEAR_MS: Final = 365 * 24 * 3_600_000
_PAUSES_SECONDS: Final = (2.0, 6.0)
_SETTLE_SECONDS: Final = 900.0
_SPENDERS: Final = {"trait": "computed.spent", "op": "gte", "value": 500}
_TRAITS: Final = (
    {"key": "spent", "name": "Spent", "event": "Order Completed", "measure": {"sum": "revenue"}},
    {"key": "orders", "name": "Orders", "event": "Order Completed"},
)


@dataclass(frozen=True)
class Scale:
    """`rate`: items a second. `spark`: whether the job of computed traits runs."""

    rate: int = 25
    users: int = 60
    spark: bool = True
    durations: Durations = field(default_factory=Durations)

    @property
    def wheres(self) -> dict[str, Any]:
        """The segments of the run."""
        wheres = {key: where for key, where in WHERES.items() if key != "hoarders"}
        return wheres | ({"spenders": _SPENDERS} if self.spark else {})


@dataclass(frozen=True)
class Report:
    seed: int
    date: str
    seconds: float
    load_average: float
    injected: Sequence[Injected]
    verdict: Verdict

    @property
    def late(self) -> list[str]:
        """Faults after which a part was not ready within the bound."""
        return [
            f"{one.fault}: {part} after {seconds:.0f} s"
            for one in self.injected
            for part, seconds in one.recovery_seconds.items()
            if seconds > READY_SECONDS
        ] + [f"{one.fault}: never ready: {', '.join(one.never)}" for one in self.injected if one.never]

    @property
    def unhealed(self) -> list[str]:
        """Parts that hung and that their supervisor did not restart for that reason."""
        return [
            f"{one.fault}: {part}"
            for one in self.injected
            if one.fault.kind == "hang"
            for part in one.fault.parts
            if "liveness" not in one.restarts.get(part, "")
        ]

    @property
    def good(self) -> bool:
        return self.verdict.good and not self.late and not self.unhealed


class Platform:
    """The running instance under load."""

    def __init__(self, at: Addresses, api: httpx.Client, seed: int, scale: Scale) -> None:
        self._at = at
        self._api = api
        self._seed = seed
        self._scale = scale
        self._instance = Instance(at.data_dir)
        self._receiver = Receiver(_SECRET)
        self._traffic = Traffic(at.ingest_url, seed, rate=scale.rate, users=scale.users)
        self.processes = Processes(self._instance, scale.durations)

    def define(self) -> None:
        """Everything is in force before the first item, so that no history has to be read."""
        for trait in _TRAITS if self._scale.spark else ():
            self._post("/v1/computed-traits", trait)
        for key, where in self._scale.wheres.items():
            self._post("/v1/segments", document(key, where))
        webhook = {"key": "receiver", "url": self._receiver.url, "secret": _SECRET, "segments": [SUBSCRIBED]}
        self._post("/v1/webhooks", webhook)
        self._settle()
        self._traffic.start()

    def suffer(self, faults: Iterable[Fault], seconds: float) -> list[Injected]:
        """One fault after the other, each after all parts are ready again."""
        began, pauses, injected = time.monotonic(), random.Random(f"{self._seed} pauses"), list[Injected]()
        for number, fault in enumerate(faults, 1):
            time.sleep(pauses.uniform(*_PAUSES_SECONDS))  # sleep: the load between two faults
            if time.monotonic() - began > seconds:
                break
            one = self.processes.inject(fault, began)
            injected.append(one)
            recovered = ", ".join(f"{part} {took:.1f} s" for part, took in one.recovery_seconds.items())
            sys.stderr.write(f"{number:4} {one.at_seconds:7.1f} s  {fault}: ready after {recovered}{_never(one)}{_restarts(one)}\n")
            if one.never:
                break
        return injected

    def finish(self) -> Verdict:
        """Stop the load, process everything, advance the clock so that every timer fires, and judge."""
        self._traffic.stop(_SETTLE_SECONDS)
        self._settle()
        clock = StreamClock(self._at.kafka, self._at.registry_url)
        clock.advance(EpochMs(self._traffic.now_ms() + _YEAR_MS))
        self._settle()
        judge = Judge(self._at.kafka, self._at.registry_url, self._api, self._scale.wheres, computed=self._scale.spark)
        expected = judge.expected_webhooks(SUBSCRIBED)
        deadline = time.monotonic() + _SETTLE_SECONDS
        while not expected <= self._received() and time.monotonic() < deadline:
            time.sleep(0.5)  # sleep: between two looks at the webhooks that came
        verdict = judge.all(self._traffic.sent, self._received(), SUBSCRIBED)
        verdict.add("uploads that the client gave up and repeated", self._traffic.failed_uploads)
        return verdict

    def close(self) -> None:
        self._receiver.close()

    def _received(self) -> set[str]:
        return {call["id"] for call in list(self._receiver.calls)}

    def _settle(self) -> None:
        deadline = time.monotonic() + _SETTLE_SECONDS
        while True:
            try:
                with pipeline_of(self._instance) as pipeline:
                    settle(pipeline, max(1.0, deadline - time.monotonic()))
            except ApiRefused:  # it is starting again
                if time.monotonic() >= deadline:
                    raise
                time.sleep(1)
            else:
                return

    def _post(self, path: str, document: Mapping[str, Any]) -> None:
        answer = self._api.post(path, json=document)
        assert answer.status_code == httpx.codes.CREATED, answer.text


def run(directory: Path, seed: int, scale: Scale, faults: Sequence[Fault], *, seconds: float) -> Report:
    """The whole of it: start, load, faults, settle, judge."""
    began, date = time.monotonic(), datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
    parts = {*SERVICES, *(["spark"] if scale.spark else [])}
    headers = {"Authorization": f"Bearer {API_TOKEN}"}
    with (
        embedded(parts, directory, clock="event", timeout_seconds=900) as at,
        httpx.Client(base_url=at.api_url, headers=headers, timeout=60, trust_env=False) as api,
    ):
        platform = Platform(at, api, seed, scale)
        try:
            platform.define()
            injected = platform.suffer(faults, seconds)
            load_average = os.getloadavg()[2]
            verdict = platform.finish()
        finally:
            platform.close()
    return Report(seed, date, round(time.monotonic() - began, 1), round(load_average, 1), injected, verdict)


def chosen(scale: Scale, seed: int, count: int, only: Sequence[str] | None = None) -> list[Fault]:
    """The first faults of the schedule; `only`: of these kinds."""
    parts = ("kafka", "cassandra", "registry", *SERVICES, *(["spark"] if scale.spark else []))
    return list(islice((fault for fault in schedule(parts, seed) if only is None or fault.kind in only), count))


def table(report: Report) -> str:
    """For people."""
    lines = [f"{'fault':<8}{'count':>6}{'recovered':>11}{'p50 s':>8}{'max s':>8}  slowest part"]
    for kind in sorted({one.fault.kind for one in report.injected}):
        mine = [one for one in report.injected if one.fault.kind == kind]
        times = [(took, part) for one in mine for part, took in one.recovery_seconds.items()]
        longest = max(times, default=(0.0, ""))
        middle = statistics.median(took for took, _ in times) if times else 0.0
        lines.append(f"{kind:<8}{len(mine):>6}{len(times):>11}{middle:>8.1f}{longest[0]:>8.1f}  {longest[1]}")
    by_part: dict[str, list[float]] = {}
    for one in report.injected:
        for part, took in one.recovery_seconds.items():
            by_part.setdefault(part, []).append(took)
    lines += ["", f"{'part':<14}{'hit':>5}{'p50 s':>8}{'max s':>8}"]
    lines += [f"{name:<14}{len(t):>5}{statistics.median(t):>8.1f}{max(t):>8.1f}" for name, t in sorted(by_part.items())]
    lines += ["", *(f"{name:<48}{count:>10}" for name, count in report.verdict.counts.items()), ""]
    lines += [f"  {example}" for example in report.verdict.examples]
    lines += [f"  not ready within {READY_SECONDS:.0f} s: {late}" for late in report.late]
    lines += [f"  hung and not restarted for it: {unhealed}" for unhealed in report.unhealed]
    verdict = report.verdict
    result = f"lost {verdict.lost}, doubled {verdict.doubled}, wrong {verdict.wrong}"
    scope = f"{len(report.injected)} faults, {report.seconds:.0f} s, load average {report.load_average}"
    return "\n".join([*lines, f"seed {report.seed}, {report.date}, {scope}: {result}"])


def as_json(report: Report) -> dict[str, Any]:
    return {**asdict(report), "late": report.late, "unhealed": report.unhealed, "good": report.good}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--faults", type=int, default=160)
    parser.add_argument("--minutes", type=float, default=1000.0, help="end earlier after this time of faults")
    parser.add_argument("--only", nargs="*", help="kinds of faults: kill, slow, stop, hang")
    parser.add_argument("--rate", type=int, default=Scale.rate, help="items a second")
    parser.add_argument("--no-spark", action="store_true", help="without the job of computed traits")
    parser.add_argument("--keep", type=Path, help="a new directory for the data and logs; else a temporary one")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    scale = Scale(rate=given.rate, spark=not given.no_spark)
    faults = chosen(scale, given.seed, given.faults, given.only)
    sys.stderr.write(f"seed {given.seed}\n" + "".join(f"{number:4} {fault}\n" for number, fault in enumerate(faults, 1)))
    with tempfile.TemporaryDirectory(prefix="starling-faults-platform-") as temporary:
        report = run(given.keep or Path(temporary), given.seed, scale, faults, seconds=given.minutes * 60)
    sys.stdout.write(table(report) + "\n")
    written = Path("out/faults-platform") / f"{given.seed}.json"
    written.parent.mkdir(parents=True, exist_ok=True)
    written.write_text(json.dumps(as_json(report), indent=1))
    sys.stdout.write(f"written to {written}\n")
    return 0 if report.good else 1


def _never(one: Injected) -> str:
    return f"; never ready: {', '.join(one.never)}" if one.never else ""


def _restarts(one: Injected) -> str:
    return "; restarted: " + ", ".join(f"{part} ({why})" for part, why in one.restarts.items()) if one.restarts else ""


if __name__ == "__main__":
    sys.exit(main())
