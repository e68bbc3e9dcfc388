"""Runs promtool, and writes its files of unit tests."""

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

ROOT: Final = Path(__file__).parents[2]
PROMTOOL: Final = ROOT / "tools/promtool.sh"
RULES: Final = ROOT / "helm/starling/rules/alerts.yaml"
INTERVAL: Final = "1m"
"""The time between two values of a series."""


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run promtool. A test without the binary is skipped: `make promtool` builds it."""
    found = subprocess.run([PROMTOOL, "--path"], capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.skip(found.stderr.strip())
    return subprocess.run([found.stdout.strip(), *arguments], capture_output=True, text=True, check=False)


def run_tests(directory: Path, groups: Sequence[Mapping[str, Any]], rules: Path | None = None) -> str:
    """Run groups of unit tests; return the report of what fails, empty if nothing does."""
    document = {"rule_files": [] if rules is None else [str(rules)], "evaluation_interval": INTERVAL, "tests": list(groups)}
    path = directory / "tests.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False, width=1_000))
    done = promtool("test", "rules", path)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def shape_of(expr: str, labels: Sequence[str]) -> str:
    """Return a query that is 1, with `has_<label>` as `yes` for each of the labels, if all series of `expr` have them."""
    expr = expr.replace("$__rate_interval", "5m")
    for label in labels:
        # Into a label of its own: series that differ by `label` alone would become one, which is an error.
        expr = f'label_replace({expr}, "has_{label}", "yes", "{label}", ".+")'
    return f"group by ({', '.join(f'has_{label}' for label in labels)}) ({expr})" if labels else f"group({expr})"


def shape_test(title: str, expr: str, labels: Sequence[str], at: str, series: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Return a group of tests: the query gives series, each with these labels."""
    wanted = "{" + ", ".join(f'has_{label}="yes"' for label in sorted(labels)) + "}"
    sample = {"labels": wanted, "value": 1}
    check = {"expr": shape_of(expr, labels), "eval_time": at, "exp_samples": [sample]}
    return {"name": title, "interval": INTERVAL, "input_series": list(series), "promql_expr_test": [check]}


def legend_labels(legend: str) -> list[str]:
    """Return the labels in double braces."""
    return re.findall(r"{{(\w+)}}", legend)
