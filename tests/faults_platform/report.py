"""The result of a run: its checkpoint on disk, and its table for people."""

import json
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.faults.findings import Findings
from tests.faults.provenance import Provenance
from tests.faults_platform.processes import Durations, Finding, Injected, as_record, from_record

READY_SECONDS: Final = Durations().ready_seconds
"""The bound on the time until a part is ready again, from the end of its cause."""


@dataclass
class Report:
    """A run, as far as it has come. `flow_seconds`: after each wave, until a change that was decided afterwards arrived."""

    provenance: Provenance
    injected: list[Injected] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    flow_seconds: list[float] = field(default_factory=list)
    compared: Findings | None = None
    interrupted: str | None = "the run did not end"
    seconds: float = 0.0
    load_average: float = 0.0

    @property
    def late(self) -> list[str]:
        """Faults after which a part was not ready within the bound."""
        return [
            f"{one.fault}: {part} after {seconds:.0f} s"
            for one in self.injected
            for part, seconds in {**one.recovery_seconds, **one.others_seconds}.items()
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
        """Whether the run ended, and showed nothing that it must not show."""
        compared = self.compared is not None and self.compared.good
        return compared and self.interrupted is None and not (self.late or self.unhealed or self.findings)

    def end(self) -> dict[str, Any]:
        """Return what is known at the end only, for the checkpoint."""
        compared = None if self.compared is None else asdict(self.compared)
        known = {"seconds": self.seconds, "load_average": self.load_average, "flow_seconds": self.flow_seconds}
        return {**known, "interrupted": self.interrupted, "compared": compared, "good": self.good}


class Checkpoint:
    """A file with a line for the run, each fault, each finding and the end, written at once."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.file = directory / "run.jsonl"
        self.evidence = directory / "findings"

    def write(self, kind: str, value: Injected | Finding | Provenance | Mapping[str, Any]) -> None:
        """Append one line. `kind`: run, fault, finding or end."""
        record = as_record(value) if isinstance(value, Injected) else dict(value) if isinstance(value, Mapping) else asdict(value)
        with self.file.open("a") as file:
            file.write(json.dumps({kind: record}) + "\n")


def read_checkpoint(file: Path) -> Report:
    """Return the run of a checkpoint, whether it came to its end or not."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    report = Report(Provenance.from_record(lines[0]["run"]))
    report.injected = [from_record(line["fault"]) for line in lines if "fault" in line]
    report.findings = [Finding(**line["finding"]) for line in lines if "finding" in line]
    for end in (line["end"] for line in lines if "end" in line):
        report.seconds, report.load_average, report.flow_seconds = end["seconds"], end["load_average"], end["flow_seconds"]
        report.interrupted = end["interrupted"]
        report.compared = None if end["compared"] is None else Findings(**end["compared"])
    return report


def table(report: Report) -> str:
    """Return the table for people."""
    lines = [f"{'fault':<8}{'count':>6}{'recovered':>11}{'p50 s':>8}{'max s':>8}  slowest part"]
    # A kind may name places, such as `at after_fold`.
    kinds = [one.fault.kind.partition(" ")[0] for one in report.injected]
    for kind in sorted(set(kinds)):
        mine = [one for one, its_kind in zip(report.injected, kinds, strict=True) if its_kind == kind]
        times = [(took, part) for one in mine for part, took in one.recovery_seconds.items()]
        longest = max(times, default=(0.0, ""))
        middle = _median(took for took, _ in times)
        lines.append(f"{kind:<8}{len(mine):>6}{len(times):>11}{middle:>8.1f}{longest[0]:>8.1f}  {longest[1]}")
    by_part: dict[str, list[float]] = {}
    for one in report.injected:
        for part, took in one.recovery_seconds.items():
            by_part.setdefault(part, []).append(took)
    lines += ["", f"{'part':<14}{'hit':>5}{'p50 s':>8}{'max s':>8}"]
    lines += [f"{name:<14}{len(took):>5}{_median(took):>8.1f}{max(took):>8.1f}" for name, took in sorted(by_part.items())]
    if report.flow_seconds:
        longest_flow = max(report.flow_seconds)
        lines += ["", f"until a change arrived after a wave: p50 {_median(report.flow_seconds):.1f} s, max {longest_flow:.1f} s"]
    compared = report.compared
    if compared is not None:
        lines += ["", *(f"{name:<52}{count:>10}" for name, count in compared.counts.items())]
        lines += ["", *(f"  {example}" for example in compared.examples)]
    lines += [f"  not ready within {READY_SECONDS:.0f} s: {late}" for late in report.late]
    lines += [f"  hung and not restarted for it: {unhealed}" for unhealed in report.unhealed]
    lines += [f"  finding at {one.at_seconds:.0f} s: {one.what} {one.evidence}".rstrip() for one in report.findings]
    if report.interrupted is not None:
        lines.append(f"  interrupted: {report.interrupted}")
    result = "not compared" if compared is None else f"lost {compared.lost}, doubled {compared.doubled}, wrong {compared.wrong}"
    scope = f"{len(report.injected)} faults, {report.seconds:.0f} s, load average {report.load_average}"
    return "\n".join([*lines, f"{report.provenance}, {scope}: {result}, {len(report.late)} late, {len(report.findings)} findings"])


def _median(values: Iterable[float]) -> float:
    found = list(values)
    return statistics.median(found) if found else 0.0
