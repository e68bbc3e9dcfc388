"""promtool evaluates the rules: each alert fires over the series that it is for, and over no others."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helm.alert_cases import CASES, Case
from tests.helm.promtool import INTERVAL, RULES, legend_labels, promtool, run_tests, shape_test

ALERTS: dict[str, Any] = {
    rule["alert"]: rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"] if "alert" in rule
}


def annotations_of(name: str, case: Case) -> dict[str, str]:
    """Return the annotations with the labels and the value of a case."""
    labels = case.labels or {}

    def of(found: re.Match[str]) -> str:
        return labels[found[1]] if found[1] else case.value

    summary = re.sub(r"{{ \$(?:labels\.(\w+)|value(?: \| \w+)?) }}", of, ALERTS[name]["annotations"]["summary"])
    return {**ALERTS[name]["annotations"], "summary": summary}


def group_of(name: str, number: int, case: Case) -> dict[str, Any]:
    """Return the group of unit tests of a case."""
    expected: list[dict[str, Any]] = []
    if case.labels is not None:
        labels = {**case.labels, **ALERTS[name]["labels"]}
        expected.append({"exp_labels": labels, "exp_annotations": annotations_of(name, case)})
    return {
        "name": f"{name}, case {number}",
        "interval": INTERVAL,
        "input_series": [{"series": series, "values": values} for series, values in case.series.items()],
        "alert_rule_test": [{"eval_time": case.at, "alertname": name, "exp_alerts": expected}],
    }


def test_each_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    assert list(CASES) == list(ALERTS)
    for name, cases in CASES.items():
        assert {case.labels is None for case in cases} == {True, False}, name
        has_value = "$value" in ALERTS[name]["annotations"]["summary"]
        assert all(bool(case.value) == (has_value and case.labels is not None) for case in cases), name


def test_promtool_accepts_the_rules() -> None:
    done = promtool("check", "rules", "--lint-fatal", RULES)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
def test_each_alert_fires_over_its_series_and_over_no_others(tmp_path: Path) -> None:
    groups = [group_of(name, number, case) for name, cases in CASES.items() for number, case in enumerate(cases)]
    assert run_tests(tmp_path, groups, RULES) == ""


@pytest.mark.parametrize(
    "planted",
    [
        Case(
            "10m",
            {'starling_api_job_failures{job="starling-x",instance="a",spark_job="backfill"}': "2x20"},
            {"job": "starling-x"},
            "2",
        ),
        Case("10m", {'starling_api_job_failures{job="starling-x",instance="a",spark_job="backfill"}': "3x20"}),
    ],
    ids=["does not fire", "fires"],
)
def test_a_case_that_expects_the_opposite_fails(tmp_path: Path, planted: Case) -> None:
    group = group_of("StarlingJobFails", 0, planted._replace(labels=planted.labels and {**planted.labels, "spark_job": "backfill"}))
    assert "StarlingJobFails, case 0" in run_tests(tmp_path, [group], RULES)


SERIES = [{"series": 'starling_stream_lag_records{job="starling-x",topic="t",partition="0"}', "values": "1x10"}]


@pytest.mark.parametrize(
    ("expr", "legend"),
    [
        ("sum by (job, topic) (starling_stream_lag_record)", "{{job}} {{topic}}"),
        ("sum by (job, tpic) (starling_stream_lag_records)", "{{job}} {{tpic}}"),
        ('sum by (job) (starling_stream_lag_records{tpic="t"})', "{{job}}"),
        ('sum by (job) (starling_stream_lag_records{topic="other"})', "{{job}}"),
    ],
)
def test_a_query_with_an_unknown_metric_or_label_fails(tmp_path: Path, expr: str, legend: str) -> None:
    report = run_tests(tmp_path, [shape_test("planted", expr, legend_labels(legend), "5m", SERIES)])
    assert "FAILED" in report
    assert 'exp: {has_job="yes"' in report


def test_a_query_with_known_metrics_and_labels_passes(tmp_path: Path) -> None:
    expr, legend = "sum by (job, topic) (rate(starling_stream_lag_records[$__rate_interval]))", "{{job}} {{topic}}"
    assert run_tests(tmp_path, [shape_test("right", expr, legend_labels(legend), "5m", SERIES)]) == ""
