"""Writes helm/starling/dashboards/overview.json, a dashboard of Grafana: `make dashboards`. A row is a question of an operator."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

DIRECTORY: Final = Path(__file__).parent.parent / "helm/starling/dashboards"
_WIDTH: Final = 24
_HEIGHT: Final = 8


class Panel(NamedTuple):
    """A graph over time. `unit`: by Grafana's name. `legend`: with labels in double braces."""

    title: str
    expr: str
    legend: str
    unit: str = "short"


def _quantile(quantile: float, metric: str, label: str) -> str:
    return f"histogram_quantile({quantile}, sum by ({label}, le) (rate({metric}_bucket[$__rate_interval])))"


OVERVIEW: Final[Sequence[tuple[str, Sequence[Panel]]]] = (
    (
        "How fast are the error budgets used up? 1: in 30 days",
        (
            Panel(
                "Availability of the edge, 0.05 % of the requests",
                '(1 - sum by (job) (rate(starling_ingest_requests_total{status!~"5.."}[1h])) '
                "/ sum by (job) (rate(starling_ingest_requests_total[1h]))) / 0.0005",
                "{{job}}",
            ),
            Panel(
                "Freshness, 1 % of the membership changes",
                '(1 - sum by (job) (rate(starling_projector_freshness_seconds_bucket{le="1.0"}[1h])) '
                '/ sum by (job) (rate(starling_projector_freshness_seconds_bucket{le="+Inf"}[1h]))) / 0.01',
                "{{job}}",
            ),
        ),
    ),
    (
        "Are events accepted?",
        (
            Panel(
                "Requests",
                "sum by (status) (rate(starling_ingest_requests_total[$__rate_interval]))",
                "{{status}}",
                "reqps",
            ),
            Panel(
                "Items",
                "sum by (outcome) (rate(starling_ingest_items_total[$__rate_interval]))",
                "{{outcome}}",
            ),
            Panel("Duration of a request, p99", _quantile(0.99, "starling_ingest_request_seconds", "path"), "{{path}}", "s"),
        ),
    ),
    (
        "Are membership changes on time?",
        (
            Panel("Lag", "sum by (job, topic) (starling_stream_lag_records)", "{{job}} {{topic}}"),
            Panel(
                "Records wait for an ingest process", "max by (source) (starling_stream_source_behind_seconds)", "{{source}}", "s"
            ),
            Panel("Duration of a commit, p99", _quantile(0.99, "starling_stream_commit_seconds", "job"), "{{job}}", "s"),
        ),
    ),
    (
        "How long after an event can its membership changes be read?",
        (
            Panel("Half of them", _quantile(0.5, "starling_projector_freshness_seconds", "job"), "{{job}}", "s"),
            Panel("99 of 100", _quantile(0.99, "starling_projector_freshness_seconds", "job"), "{{job}}", "s"),
        ),
    ),
    (
        "Do users enter and leave segments?",
        (
            Panel(
                "Membership changes",
                "sum by (status, cause) (rate(starling_segmenter_changes_total[$__rate_interval]))",
                "{{status}} {{cause}}",
            ),
            Panel("Segments in force", "max by (job) (starling_segmenter_segments)", "{{job}}"),
            Panel(
                "Rows of the read models",
                "sum by (table) (rate(starling_projector_rows_total[$__rate_interval]))",
                "{{table}}",
            ),
        ),
    ),
    (
        "Are messages delivered?",
        (
            Panel(
                "Attempts",
                "sum by (channel, outcome) (rate(starling_delivery_attempts_total[$__rate_interval]))",
                "{{channel}} {{outcome}}",
            ),
            Panel("Targets with an open circuit", "sum by (channel) (starling_delivery_open_circuits)", "{{channel}}"),
            Panel("Messages that wait in memory", "sum by (channel) (starling_delivery_waiting_messages)", "{{channel}}"),
        ),
    ),
    (
        "Are broadcasts written?",
        (
            Panel(
                "Members listed for the messenger",
                "sum by (channel) (rate(starling_broadcaster_members_total[$__rate_interval]))",
                "{{channel}}",
            ),
            Panel("Broadcasts by state", "max by (state) (starling_broadcaster_broadcasts)", "{{state}}"),
            Panel("Time without progress", "max by (job) (starling_broadcaster_stalled_seconds)", "{{job}}", "s"),
        ),
    ),
    (
        "Are audiences of other systems in step?",
        (
            Panel(
                "Changes",
                "sum by (target, outcome) (rate(starling_audience_changes_total[$__rate_interval]))",
                "{{target}} {{outcome}}",
            ),
            Panel("Records not read", "sum by (workspace, target) (starling_audience_lag_records)", "{{workspace}}/{{target}}"),
            Panel("Targets", "sum by (state) (starling_audience_targets)", "{{state}}"),
        ),
    ),
    (
        "Does the API answer?",
        (
            Panel("Requests", "sum by (status) (rate(starling_api_requests_total[$__rate_interval]))", "{{status}}", "reqps"),
            Panel("Duration of a request, p99", _quantile(0.99, "starling_api_request_seconds", "route"), "{{route}}", "s"),
            Panel(
                "Requests beyond a rate limit",
                "sum by (scope, kind) (rate(starling_api_rate_limited_total[$__rate_interval]))",
                "{{scope}} {{kind}}",
                "reqps",
            ),
        ),
    ),
    (
        "Are the memberships right?",
        (
            Panel(
                "Users of self-audits, in a day",
                "sum by (result) (increase(starling_api_self_audit_users_total[1d]))",
                "{{result}}",
            ),
            Panel(
                "Differences, in a day", "sum by (source) (increase(starling_api_self_audit_differences_total[1d]))", "{{source}}"
            ),
            Panel(
                "Time since the last self-audit",
                "time() - max(starling_api_self_audit_completed_timestamp_seconds)",
                "self-audit",
                "s",
            ),
        ),
    ),
    (
        "Is the state of the workers safe?",
        (
            Panel("Partitions by state", "sum by (job, state) (starling_stream_task_state)", "{{job}} {{state}}"),
            Panel(
                "Age of the last flush", "max by (job, instance) (starling_stream_flush_age_seconds)", "{{job}} {{instance}}", "s"
            ),
            Panel("Unflushed bytes", "sum by (job, instance) (starling_stream_unflushed_bytes)", "{{job}} {{instance}}", "bytes"),
        ),
    ),
    (
        "Do the stages have enough workers?",
        (
            Panel("Replicas", "max by (stage) (starling_scaler_replicas)", "{{stage}}"),
            Panel("Replicas for the load", "max by (stage) (starling_scaler_wanted_replicas)", "{{stage}}"),
            Panel(
                "Decisions",
                "sum by (stage, action, reason) (increase(starling_scaler_decisions_total[$__rate_interval]))",
                "{{stage}} {{action}} {{reason}}",
            ),
        ),
    ),
    (
        "What is refused?",
        (
            Panel(
                "Records of the stages",
                "sum by (job, code) (increase(starling_stream_refused_total[$__rate_interval]))",
                "{{job}} {{code}}",
            ),
            Panel(
                "Records of Spark",
                "sum by (query, code) (increase(starling_spark_query_refused_total[$__rate_interval]))",
                "{{query}} {{code}}",
            ),
            Panel("Processes that do not respond", 'count by (job) (up{job=~"starling-.*"} == 0)', "{{job}}"),
        ),
    ),
)


def dashboard(rows: Sequence[tuple[str, Sequence[Panel]]]) -> dict[str, Any]:
    """Return a dashboard in the format of Grafana 10 and later."""
    panels: list[dict[str, Any]] = []
    top = 0
    for question, graphs in rows:
        place = {"x": 0, "y": top, "w": _WIDTH, "h": 1}
        panels.append({"id": len(panels) + 1, "type": "row", "title": question, "collapsed": False, "gridPos": place, "panels": []})
        width = _WIDTH // len(graphs)
        for column, graph in enumerate(graphs):
            place = {"x": column * width, "y": top + 1, "w": width, "h": _HEIGHT}
            panels.append(_graph(len(panels) + 1, graph, place))
        top += 1 + _HEIGHT
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus", "refresh": 1}
    return {
        "uid": "starling-overview",
        "title": "Starling: overview",
        "tags": ["starling"],
        "schemaVersion": 39,
        "editable": True,
        "time": {"from": "now-3h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [source]},
        "panels": panels,
    }


def _graph(number: int, graph: Panel, place: dict[str, int]) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "id": number,
        "type": "timeseries",
        "title": graph.title,
        "gridPos": place,
        "datasource": source,
        "fieldConfig": {"defaults": {"unit": graph.unit, "min": 0, "custom": {"fillOpacity": 10}}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}},
        "targets": [{"refId": "A", "datasource": source, "expr": graph.expr, "legendFormat": graph.legend}],
    }


def document() -> str:
    """Return the dashboard as JSON."""
    return json.dumps(dashboard(OVERVIEW), indent=2) + "\n"


def main() -> int:
    """Write the dashboard; return the exit code."""
    DIRECTORY.mkdir(exist_ok=True)
    (DIRECTORY / "overview.json").write_text(document())
    return 0


if __name__ == "__main__":
    sys.exit(main())
