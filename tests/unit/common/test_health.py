"""A worker serves its liveness, its readiness and its metrics."""

import http.client
import json

import pytest
from prometheus_client import CollectorRegistry

from starling_common.telemetry.health import HealthServer, Turns
from starling_common.telemetry.metrics import Metrics


def get(port: int, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_a_live_worker_that_is_not_ready_states_the_reason() -> None:
    metrics = Metrics(CollectorRegistry())
    metrics.counter("starling_stream_timers_fired_total").inc(3)
    server = HealthServer(
        ("127.0.0.1", 0), metrics.registry, alive=dict, ready=lambda: {"broker": "no assignment yet", "state": None}
    )
    server.start()
    try:
        assert get(server.port, "/healthz") == (200, b'{"status": "pass", "checks": {}}')
        status, body = get(server.port, "/readyz")
        assert status == 503
        assert json.loads(body)["checks"] == {"broker": "no assignment yet", "state": "ok"}
        assert b"starling_stream_timers_fired_total 3.0" in get(server.port, "/metrics")[1]
        assert get(server.port, "/nothing")[0] == 404
    finally:
        server.stop()
    with pytest.raises(ConnectionRefusedError):
        get(server.port, "/healthz")


def test_a_loop_that_does_not_turn_fails_after_its_limit() -> None:
    now = 0.0
    turns = Turns("the loop", 60.0, lambda: now)
    now = 1000.0
    assert turns.problem() is None
    turns.turned()
    now = 1060.0
    assert turns.problem() is None
    now = 1061.0
    assert turns.problem() == "the loop has not turned for 61 s: restart this process"
    turns.turned()
    assert turns.problem() is None
    now = 5000.0
    turns.rest()
    assert turns.problem() is None
