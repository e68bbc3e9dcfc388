"""The dashboards use exported metrics with their labels, and the chart contains them as they are generated."""

import json
import re

import promql_parser
import pytest

from starling_common.telemetry.metrics import telemetry
from tests.helm.rendering import of_kind, rendered
from tools.dashboards import DIRECTORY, OVERVIEW, Panel, document

PANELS = [panel for _, panels in OVERVIEW for panel in panels]
SCRAPED = {"job", "instance", "le"}


def problems(panel: Panel) -> list[str]:
    """Return what is wrong with the query of a panel."""
    query = panel.expr.replace("$__rate_interval", "5m")
    promql_parser.parse(query)
    known = telemetry()
    found = []
    for name in re.findall(r"\bstarling_[a-z_]+", query):
        metric = known.get(name) or known.get(name.removesuffix("_bucket"))
        if metric is None:
            found.append(f"{name} is not exported")
            continue
        if name.endswith("_bucket") != (metric["type"] == "histogram"):
            found.append(f"{name}: a histogram is read by its buckets")
        labels = {*metric.get("labels", ()), *SCRAPED}
        grouped = {label.strip() for group in re.findall(r"\bby \(([^)]*)\)", query) for label in group.split(",")}
        found += [f"{name} has no label {label}" for label in grouped - labels]
    shown = set(re.findall(r"{{(\w+)}}", panel.legend))
    grouped = {label.strip() for group in re.findall(r"\bby \(([^)]*)\)", query) for label in group.split(",")}
    return [*found, *(f"the legend has no {label}" for label in shown ^ (grouped - {"le"}))]


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.title)
def test_a_panel_shows_exported_metrics(panel: Panel) -> None:
    assert problems(panel) == []


@pytest.mark.parametrize(
    ("expr", "legend", "expected"),
    [
        ("sum by (topic) (starling_stream_lag_record)", "{{topic}}", "is not exported"),
        ("sum by (table) (starling_stream_lag_records)", "{{table}}", "has no label table"),
        ("sum by (job) (rate(starling_stream_commit_seconds[5m]))", "{{job}}", "by its buckets"),
        ("sum by (job, topic) (starling_stream_lag_records)", "{{job}}", "the legend has no topic"),
    ],
)
def test_a_planted_mistake_is_found(expr: str, legend: str, expected: str) -> None:
    assert expected in " ".join(problems(Panel("planted", expr, legend)))


def test_the_file_is_as_generated() -> None:
    assert (DIRECTORY / "overview.json").read_text() == document(), "make dashboards"


def test_panels_do_not_overlap_and_fill_their_rows() -> None:
    panels = json.loads(document())["panels"]
    cells = [
        (column, line)
        for place in (panel["gridPos"] for panel in panels)
        for column in range(place["x"], place["x"] + place["w"])
        for line in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert {column for column, _ in cells} == set(range(24))
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_the_chart_contains_each_dashboard_unchanged() -> None:
    manifests = [one for one in of_kind(rendered(ci="everything"), "ConfigMap") if "dashboard" in one["metadata"]["name"]]
    files = sorted(DIRECTORY.glob("*.json"))
    assert [one["data"] for one in manifests] == [{f"starling-{path.name}": path.read_text()} for path in files]
    assert all(one["metadata"]["namespace"] == "monitoring" for one in manifests)
    assert all(one["metadata"]["labels"]["grafana_dashboard"] == "yes" for one in manifests)
