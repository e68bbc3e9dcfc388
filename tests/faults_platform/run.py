"""Faults of the whole platform under load, then the comparison: `python -m tests.faults_platform.run --seed 7`.

Exit code 1 when anything was lost, doubled or wrong, when a part was not ready within 60 s of the end of its cause, or when the run
was interrupted. A part that stays away is a finding with its logs; it is started again, and the run goes on. Each fault is written
to a checkpoint, from which `--table FILE` prints the table of a run that was killed. The seed decides the faults, which of them
overlap, their order and the items; not the instants.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import httpx

from starling_cli.stream_clock import StreamClock
from starling_common.values import EpochMs
from starling_local.instance import Instance
from starling_local.stack.parts.services import API_TOKEN
from starling_local.testing import Addresses, embedded
from tests.faults.provenance import Provenance
from tests.faults.segments import WHERES, document
from tests.faults_platform.checking import PlatformCheck
from tests.faults_platform.processes import Durations, Finding, Injected, Processes
from tests.faults_platform.report import Checkpoint, Report, read_checkpoint, table
from tests.faults_platform.schedule import Wave, first_faults, one_round, schedule
from tests.faults_platform.settling import settle_through_restarts
from tests.faults_platform.traffic import Traffic
from tests.faults_platform.webhooks import Endpoint

SERVICES: Final = ("ingest", "normalizer-0", "segmenter-0", "projector-0", "api", "delivery-0")
SUBSCRIBED: Final = "buyers"
"""The segment of the webhook."""
_SECRET: Final = "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldY"
_YEAR_MS: Final = 365 * 24 * 3_600_000
_LOAD_ITEMS: Final = 25
"""Items that the edge takes between two waves, at least."""
_FLOW_SECONDS: Final = 120.0
"""A change that was decided after a wave arrives as a webhook within this time, or the platform is ready and does not work."""
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

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts that the faults hit."""
        return ("kafka", "cassandra", "registry", *SERVICES, *(["spark"] if self.spark else []))


class Platform:
    """The running instance under load."""

    def __init__(self, at: Addresses, api: httpx.Client, report: Report, scale: Scale, checkpoint: Checkpoint) -> None:
        self._at = at
        self._api = api
        self._scale = scale
        self._report = report
        self._checkpoint = checkpoint
        self._instance = Instance(at.data_dir)
        self._endpoint = Endpoint(_SECRET)
        seed = report.provenance.seed
        self._traffic = Traffic(at.ingest_url, seed, rate=scale.rate, users=scale.users)
        self.processes = Processes(self._instance, scale.durations, checkpoint.evidence, seed)

    def define(self) -> None:
        """Everything is in force before the first item, so that no history has to be read."""
        for trait in _TRAITS if self._scale.spark else ():
            self._post("/v1/computed-traits", trait)
        for key, where in self._scale.wheres.items():
            self._post("/v1/segments", document(key, where))
        webhook = {"key": "receiver", "url": self._endpoint.url, "secret": _SECRET, "segments": [SUBSCRIBED]}
        self._post("/v1/webhooks", webhook)
        self._settle()
        self._traffic.start()

    def suffer(self, waves: Iterable[Wave], seconds: float) -> None:
        """One wave of faults after the other, each after all parts are ready again and some load has passed."""
        began = time.monotonic()
        for number, wave in enumerate(waves, 1):
            if time.monotonic() - began > seconds:
                break
            self._await_load()
            found = self.processes.inject(wave, number, began)
            ready_at = time.time()
            self._report.injected += found
            for one in found:
                self._checkpoint.write("fault", one)
                _progress(len(self._report.injected) - len(found) + found.index(one) + 1, one)
            self._take_findings()
            self._await_flow(found[0], ready_at, began)

    def finish(self) -> None:
        """Stop the load, process everything, advance the clock so that every timer fires, and compare.

        A step that fails is a finding, and the next ones are tried: the comparison shows what is missing.
        """
        report, scale = self._report, self._scale
        for name in self.processes.wait_ready():
            self._find(f"{name} was not ready at the end")
        self._try("the load did not end", lambda: self._traffic.stop(_SETTLE_SECONDS))
        self._try("the platform did not settle", self._settle)
        clock = StreamClock(self._at.kafka, self._at.registry_url)
        self._try("the clock did not advance", lambda: clock.advance(EpochMs(self._traffic.now_ms() + _YEAR_MS)))
        self._try("the platform did not settle after the clock", self._settle)
        check = PlatformCheck(self._at.kafka, self._at.registry_url, self._api, scale.wheres, computed=scale.spark)
        expected = check.expected_webhooks(SUBSCRIBED)
        deadline = time.monotonic() + _SETTLE_SECONDS / 3
        while not expected <= self._endpoint.ids() and time.monotonic() < deadline:
            time.sleep(0.5)  # sleep: between two looks at the webhooks that came
        report.compared = check.all(self._traffic.sent, list(self._endpoint.arrived), SUBSCRIBED)
        report.compared.add("uploads that the client gave up and repeated", self._traffic.failed_uploads)

    def close(self) -> None:
        self._endpoint.close()

    def _await_load(self) -> None:
        """Let some items through; a platform that takes none is found by `_await_flow`."""
        goal, deadline = self._traffic.taken() + _LOAD_ITEMS, time.monotonic() + _FLOW_SECONDS
        while self._traffic.taken() < goal and time.monotonic() < deadline:
            time.sleep(0.2)  # sleep: between two looks at the load

    def _await_flow(self, host: Injected, ready_at: float, began: float) -> None:
        """Wait for a webhook of a change that the segmenter decided after all parts were ready."""
        seen, since = len(self._endpoint.arrived), time.monotonic()
        while time.monotonic() - since < _FLOW_SECONDS:
            arrived = self._endpoint.arrived
            new, seen = arrived[seen:], len(arrived)
            if any(datetime.fromisoformat(one.data["decided_at"]).timestamp() >= ready_at for one in new):
                self._report.flow_seconds.append(round(time.monotonic() - since, 1))
                return
            time.sleep(0.2)  # sleep: between two looks at the webhooks that came
        self._find(f"all parts are ready after {host.fault}, and no change reaches the webhook within {_FLOW_SECONDS:.0f} s", began)

    def _find(self, what: str, began: float | None = None) -> None:
        self.processes.findings.append(Finding(what, 0.0 if began is None else round(time.monotonic() - began, 1)))
        self._take_findings()

    def _take_findings(self) -> None:
        for finding in self.processes.findings[len(self._report.findings) :]:
            self._report.findings.append(finding)
            self._checkpoint.write("finding", finding)
            sys.stderr.write(f"     finding: {finding.what} {finding.evidence}\n")

    def _try(self, failed: str, step: Callable[[], object]) -> None:
        try:
            step()
        except Exception as cause:  # noqa: BLE001 - whatever failed, the comparison comes
            self._find(f"{failed}: {type(cause).__name__}: {cause}")

    def _settle(self) -> None:
        settle_through_restarts(self._instance, _SETTLE_SECONDS)

    def _post(self, path: str, document: Mapping[str, Any]) -> None:
        answer = self._api.post(path, json=document)
        assert answer.status_code == httpx.codes.CREATED, answer.text


def run(directory: Path, seed: int, scale: Scale, waves: Sequence[Wave], checkpoint: Checkpoint, *, seconds: float) -> Report:
    """The whole of it: start, load, faults, settle, compare. An interrupted run has the faults so far, and the reason."""
    began, report = time.monotonic(), Report(Provenance.of(seed))
    checkpoint.write("run", report.provenance)
    parts = {*SERVICES, *(["spark"] if scale.spark else [])}
    headers = {"Authorization": f"Bearer {API_TOKEN}"}
    try:
        with (
            embedded(parts, directory, clock="event", timeout_seconds=900) as at,
            httpx.Client(base_url=at.api_url, headers=headers, timeout=60, trust_env=False) as api,
        ):
            platform = Platform(at, api, report, scale, checkpoint)
            try:
                platform.define()
                platform.suffer(waves, seconds)
                report.load_average = round(os.getloadavg()[2], 1)
                platform.finish()
                report.interrupted = None
            finally:
                platform.close()
    except BaseException as cause:  # noqa: BLE001 - the table of the faults so far is printed
        report.interrupted = f"{type(cause).__name__}: {cause}"
    report.seconds = round(time.monotonic() - began, 1)
    checkpoint.write("end", report.end())
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--faults", type=int, help="default: one round, which has more than 150")
    parser.add_argument("--minutes", type=float, default=1000.0, help="end earlier after this time of faults")
    parser.add_argument("--only", nargs="*", help="waves whose host is of these kinds: kill, slow, stop, hang")
    parser.add_argument("--rate", type=int, default=Scale.rate, help="items a second")
    parser.add_argument("--no-spark", action="store_true", help="without the job of computed traits")
    parser.add_argument("--keep", type=Path, help="a new directory for the data and logs; else a temporary one")
    parser.add_argument("--table", type=Path, help="print the table of this checkpoint, and nothing else")
    given = parser.parse_args()
    if given.table is not None:
        sys.stdout.write(table(read_checkpoint(given.table)) + "\n")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    scale = Scale(rate=given.rate, spark=not given.no_spark)
    waves = chosen(scale, given.seed, given.faults, given.only)
    lines = [f"{number:4} {' · '.join(map(str, wave.faults))}\n" for number, wave in enumerate(waves, 1)]
    sys.stderr.write(
        f"seed {given.seed}, {sum(len(wave.faults) for wave in waves)} faults in {len(waves)} waves\n" + "".join(lines)
    )
    checkpoint = Checkpoint(Path("out/faults-platform") / f"{given.seed}-{time.strftime('%Y%m%d-%H%M%S')}")
    with tempfile.TemporaryDirectory(prefix="starling-faults-platform-") as temporary:
        report = run(given.keep or Path(temporary), given.seed, scale, waves, checkpoint, seconds=given.minutes * 60)
    sys.stdout.write(table(report) + f"\nwritten to {checkpoint.file}\n")
    return 0 if report.good else 1


def chosen(scale: Scale, seed: int, count: int | None, only: Sequence[str] | None = None) -> list[Wave]:
    """The first waves of the schedule with so many faults; None: one round. `only`: with a host of these kinds."""
    waves = schedule(scale.parts, seed)
    if count is None:
        every = one_round(scale.parts, random.Random(f"{seed} schedule"))
        return [wave for wave in every if only is None or wave.host.kind in only]
    return first_faults((wave for wave in waves if only is None or wave.host.kind in only), count)


def _progress(number: int, one: Injected) -> None:
    recovered = ", ".join(f"{part} {took:.1f} s" for part, took in one.recovery_seconds.items())
    others = "".join(f"; also {part} {took:.1f} s" for part, took in one.others_seconds.items())
    never = f"; never ready: {', '.join(one.never)}" if one.never else ""
    restarts = "; restarted: " + ", ".join(f"{part} ({why})" for part, why in one.restarts.items()) if one.restarts else ""
    sys.stderr.write(f"{number:4} {one.at_seconds:7.1f} s  {one.fault}: ready after {recovered}{others}{never}{restarts}\n")
    with suppress(OSError):
        sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
