"""promtool evaluates every query of a dashboard over the metrics that the processes of a running platform export."""

import base64
import os
import re
import uuid
from pathlib import Path
from typing import Final

import httpx
import pytest

from starling_demo.receiver import Receiver
from tests.helm.promtool import legend_labels, run_tests, shape_test
from tests.helm.recorded import Recording, metrics_of
from tests.integration.stream.rig import wait_until
from tests.system.conftest import STREAMING, Platform
from tests.system.live import define, track
from tools.dashboards import OVERVIEW, Panel

PANELS: Final = [panel for _, panels in OVERVIEW for panel in panels]
SCRAPES: Final = 4

MAY_BE_MISSING: Final = {
    "starling_api_rate_limited_total",
    "starling_api_self_audit_differences_total",
    "starling_api_self_audit_users_total",
    "starling_audience_changes_total",
    "starling_audience_lag_records",
    "starling_audience_targets",
    "starling_broadcaster_broadcasts",
    "starling_broadcaster_members_total",
    "starling_broadcaster_stalled_seconds",
    "starling_scaler_decisions_total",
    "starling_scaler_replicas",
    "starling_scaler_wanted_replicas",
    "starling_spark_query_refused_total",
    "starling_stream_refused_total",
}
"""Metrics that this platform need not export: it has no scaler, campaigns and Spark, refuses nothing, and audits once an hour."""


@pytest.mark.long
def test_every_query_of_a_dashboard_gives_series_with_its_labels(live: Platform, tmp_path: Path) -> None:
    recording = _recording(live)
    names = {name for panel in PANELS for name in metrics_of(panel.expr)}
    assert recording.missing(names) <= MAY_BE_MISSING
    planted = [
        Panel("an unknown metric", "sum by (job) (starling_stream_lag_record)", "{{job}}"),
        Panel("an unknown label", "sum by (job, tpic) (starling_stream_lag_records)", "{{job}} {{tpic}}"),
        Panel("an unknown matcher", 'sum by (job) (starling_stream_lag_records{tpic="x"})', "{{job}}"),
    ]
    groups = [
        shape_test(panel.title, panel.expr, legend_labels(panel.legend), recording.at, recording.series(metrics_of(panel.expr)))
        for panel in PANELS
    ]
    assert run_tests(tmp_path, groups) == ""
    for panel in planted:
        series = recording.series({"starling_stream_lag_records"})
        group = shape_test(panel.title, panel.expr, legend_labels(panel.legend), recording.at, series)
        assert "FAILED" in run_tests(tmp_path, [group]), f"{panel.title} is not found"


def _recording(live: Platform) -> Recording:
    """Scrape every process while events move users, whose changes a webhook receives."""
    recording, name = Recording(), f"Order {uuid.uuid4().hex}"
    key = define(live, {"event": name, "within": "2s"})
    secret = "whsec_" + base64.b64encode(os.urandom(32)).decode()
    receiver = Receiver(secret)
    webhook = {"key": f"w{uuid.uuid4().hex[:10]}", "url": receiver.url, "secret": secret, "segments": [key]}
    assert live.api.post("/v1/webhooks", json=webhook).status_code == 201
    try:
        # A series has a rate from its second sample: each is to be there before the first scrape.
        attempts = re.compile(r"^starling_delivery_attempts_total{.*\} [1-9]", re.MULTILINE)
        track(live, f"{name}-first", name)
        wait_until(lambda: bool(attempts.search(_text(_ports(live)["delivery-0"]))), "an attempt of the webhook", 60)
        for scrape in range(SCRAPES):
            for number in range(10):
                track(live, f"{name}-{scrape}-{number}", name)
            live.settle()
            recording.add(_scraped(live))
    finally:
        receiver.close()
        assert live.api.delete(f"/v1/webhooks/{webhook['key']}").status_code == 204
    return recording


def _ports(live: Platform) -> dict[str, int]:
    """Return the port of health and metrics of each process."""
    ports = live.at.ports
    return {
        part: ports.fixed(part) if part in ("ingest", "api") else ports.worker(part.rpartition("-")[0], 0) for part in STREAMING
    }


def _scraped(live: Platform) -> dict[tuple[str, str], str]:
    """Return (job, instance) -> text, as Prometheus would scrape each process."""
    return {(f"starling-{part.removesuffix('-0')}", f"127.0.0.1:{port}"): _text(port) for part, port in _ports(live).items()}


def _text(port: int) -> str:
    answer = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False)
    assert answer.status_code == 200
    return answer.text
