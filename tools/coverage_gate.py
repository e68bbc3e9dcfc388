"""Prints the coverage of each package and refuses less than 92 % of its lines: `python -m tools.coverage_gate DATA`.

`DATA` is a file that `coverage combine` wrote. `make coverage` runs the tests, combines and calls this. `--write FILE` records the
table as JSON, with the description of the run that `--run` gives.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Any, Final

from coverage import Coverage
from coverage.exceptions import CoverageException
from rich.console import Console
from rich.table import Table

from tools.dead_code import ROOT, sources

LEAST_PERCENT: Final = 92.0


@dataclass(frozen=True, slots=True)
class Package:
    """The numbers of one package: executed and all lines, taken and all branches."""

    name: str
    lines: int
    covered_lines: int
    branches: int
    covered_branches: int

    @property
    def line_percent(self) -> float:
        """Lines that were executed, in percent."""
        return 100.0 * self.covered_lines / self.lines if self.lines else 100.0

    @property
    def branch_percent(self) -> float:
        """Branches that were taken, in percent."""
        return 100.0 * self.covered_branches / self.branches if self.branches else 100.0


def package_of(path: str) -> str | None:
    """Return the package of a file, the first directory that begins with `starling_`; None for another file."""
    return next((part for part in PurePath(path).parts[:-1] if part.startswith("starling_")), None)


def packages(files: Mapping[str, Mapping[str, Any]]) -> list[Package]:
    """Return the sums by package, in order of the names. `files`: path -> summary, as coverage's JSON report states it."""
    summaries: dict[str, list[Mapping[str, Any]]] = {}
    for path, file in files.items():
        name = package_of(path)
        if name is not None:
            summaries.setdefault(name, []).append(file["summary"])

    def total(found: Iterable[Mapping[str, Any]], key: str) -> int:
        return sum(int(summary[key]) for summary in found)

    keys = ("num_statements", "covered_lines", "num_branches", "covered_branches")
    return [Package(name, *(total(found, key) for key in keys)) for name, found in sorted(summaries.items())]


def table_of(found: Iterable[Package], least_percent: float) -> Table:
    """Return the table that is printed; a package below the bound is marked."""
    table = Table("package", "lines", "covered", "branches", "covered", "", box=None, pad_edge=False)
    for column in table.columns[1:5]:
        column.justify = "right"
    for one in found:
        mark = "" if one.line_percent >= least_percent else f"below {least_percent:g} % of lines"
        table.add_row(
            one.name, f"{one.lines:,}", f"{one.line_percent:.1f} %", f"{one.branches:,}", f"{one.branch_percent:.1f} %", mark
        )
    return table


def record_of(found: Iterable[Package], run: str) -> dict[str, Any]:
    """Return the document of `--write`: the day, the run, and percentages of lines and branches by package."""
    numbers = {
        one.name: {"lines": one.lines, "lines_percent": round(one.line_percent, 1), "branches": one.branches,
                   "branches_percent": round(one.branch_percent, 1)}
        for one in found
    }  # fmt: skip
    return {"date": datetime.now(UTC).date().isoformat(), "run": run, "packages": numbers}


def measured(data: Path) -> dict[str, Any]:
    """Return coverage's JSON report of the files, with the modules that no process imported. Raises: CoverageException."""
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(shutil.copy(data, directory))
        coverage = Coverage(data_file=str(copy), config_file=str(ROOT / "pyproject.toml"))
        coverage.load()
        coverage.get_data().touch_files([str(ROOT / path) for path in sources() if package_of(path)])
        report = Path(directory) / "report.json"
        coverage.json_report(outfile=str(report), include=[f"{ROOT}/*"])  # tests also run copies of packages
        files: dict[str, Any] = json.loads(report.read_text())["files"]
    return files


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1: a package is below the bound, or there is no data."""
    parser = argparse.ArgumentParser(prog="coverage_gate", description="Coverage of each package, from combined data.")
    parser.add_argument("data", type=Path, help="the file that `coverage combine` wrote")
    parser.add_argument("--least", type=float, default=LEAST_PERCENT, help="least percentage of lines (default: %(default)g)")
    parser.add_argument("--write", type=Path, help="file for the table as JSON")
    parser.add_argument("--run", default="all tests", help="what was measured, for that file (default: %(default)s)")
    options = parser.parse_args(arguments)
    try:
        found = packages(measured(options.data))
    except (CoverageException, OSError) as cause:
        sys.stderr.write(f"coverage_gate: {cause}: run `make coverage` first\n")
        return 1
    Console(width=120).print(table_of(found, options.least))
    if options.write:
        options.write.write_text(json.dumps(record_of(found, options.run), indent=1) + "\n")
    return 1 if any(one.line_percent < options.least for one in found) else 0


if __name__ == "__main__":
    sys.exit(main())
