"""Expensive requests of one workspace: some at the same time, a bounded queue, and 429 beyond it."""

import asyncio
import threading
from dataclasses import replace
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from starling_api.app import build_app
from starling_api.http.access.gate import Gate
from starling_api.http.errors import TooManyRequests
from starling_common.telemetry.metrics import Metrics
from tests.unit.api.memory import World

PREVIEW = {"where": {"everyone": True}}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/segments/preview", PREVIEW),
        ("POST", "/v1/segments/vip/diff", PREVIEW),
        ("GET", "/v1/users/u1/export", None),
    ],
)
def test_a_full_queue_is_answered_429_with_retry_after(method: str, path: str, body: Any) -> None:
    gate = Gate(1, 0, 1)
    app = build_app(replace(World().services, gate=gate), Metrics(CollectorRegistry()), dict)

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api") as client:
            return await client.request(method, path, json=body, headers={"Authorization": "Bearer rule"})

    with gate.admitted("acme"):
        answer = asyncio.run(ask())
    assert answer.status_code == 429, answer.text
    assert answer.headers["Retry-After"] == "1"
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["code"] == "too_many_requests"
    assert asyncio.run(ask()).status_code != 429


def test_a_request_waits_for_a_place_and_other_workspaces_do_not() -> None:
    gate, done = Gate(1, 1, 60), threading.Event()

    def waits() -> None:
        with gate.admitted("acme"):
            done.set()

    with gate.admitted("acme"):
        thread = threading.Thread(target=waits)
        thread.start()
        while not gate.waiting("acme"):
            threading.Event().wait(0.001)
        with pytest.raises(TooManyRequests, match="no more requests can wait"), gate.admitted("acme"):
            pass
        with gate.admitted("other"):
            assert not done.is_set()
    thread.join(10)
    assert done.is_set()
    assert gate.waiting("acme") == 0


def test_a_place_that_does_not_become_free_is_a_refusal() -> None:
    gate = Gate(1, 1, 0.001)
    with gate.admitted("acme"), pytest.raises(TooManyRequests, match="none ended in time"), gate.admitted("acme"):
        pass
