"""The table of measurements in README.md holds what the files of benchmarks/results hold."""

import json
import re
import subprocess
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[3]
SECTION = (ROOT / "README.md").read_text().split("\n## Performance\n")[1].split("\n## ")[0]
_ROW = re.compile(
    r"^\| (?P<what>[^|]+) \| (?P<figure>[\d.,]+) (?P<unit>\S+) \| (?P<relation>[≤≥]) (?P<goal>[\d.,]+) (?P<goal_unit>\S+)"
    r" \| (?P<word>met|\*\*missed\*\*) \| \[`(?P<name>[^`]+)`\]\((?P<link>[^)]+)\) `(?P<pointer>/[^`]+)`"
    r" \| `(?P<commit>[0-9a-f]{7,})` \|$"
)


class Row(NamedTuple):
    """One line of the table. `pointer` leads to the value in the file, as a JSON pointer."""

    what: str
    figure: str
    unit: str
    relation: str
    goal: str
    goal_unit: str
    word: str
    name: str
    link: str
    pointer: str
    commit: str

    @property
    def file(self) -> Path:
        return ROOT / "benchmarks/results" / self.name

    @property
    def measured(self) -> float:
        return float(reduce(_member, self.pointer[1:].split("/"), json.loads(self.file.read_text())))


def _member(node: Any, key: str) -> Any:
    return node[int(key)] if isinstance(node, list) else node[key]


LINES = [line for line in SECTION.splitlines() if line.startswith("| ") and not line.endswith(" | | | | |")][1:]
ROWS = [Row(**found.groupdict()) for line in LINES if (found := _ROW.match(line))]


def _git(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)


def test_every_line_of_the_table_is_a_row() -> None:
    assert [line for line in LINES if not _ROW.match(line)] == []
    assert len(ROWS) > 20


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.pointer)
def test_a_figure_is_the_one_of_its_file(row: Row) -> None:
    decimals = len(row.figure.partition(".")[2])
    assert f"{row.measured:,.{decimals}f}" == row.figure
    assert row.unit == row.goal_unit
    assert row.link == f"benchmarks/results/{row.name}"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.pointer)
def test_a_missed_goal_is_called_missed(row: Row) -> None:
    goal = float(row.goal.replace(",", ""))
    met = row.measured >= goal if row.relation == "≥" else row.measured <= goal
    assert row.word == ("met" if met else "**missed**")


@pytest.mark.parametrize("name", sorted({row.name for row in ROWS}))
def test_the_commit_of_a_file_is_its_last_change(name: str) -> None:
    [commit] = {row.commit for row in ROWS if row.name == name}
    path = f"benchmarks/results/{name}"
    if _git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("without the repository's history the commit cannot be looked up")
    assert _git("log", "-1", "--format=%H", "--", path).stdout.startswith(commit)
