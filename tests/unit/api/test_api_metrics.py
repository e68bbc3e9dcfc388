"""The number of series of the API's metrics does not depend on what clients send."""

import asyncio

import httpx
from prometheus_client import CollectorRegistry

from starling_api.app import build_app
from starling_common.telemetry.metrics import Metrics
from tests.unit.api.memory import World


def test_hostile_methods_and_paths_add_no_series() -> None:
    registry = CollectorRegistry()
    app = build_app(World().services, Metrics(registry), dict)

    async def ask(first: int, last: int) -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api") as client:
            for i in range(first, last):
                await client.request(f"METHOD{i}", f"/nowhere/{i}")
                await client.request(f"METHOD{i}", "/v1/segments")
                await client.request("GET", f"/nowhere/{i}")
                await client.request("GET", f"/v1/segments/key-{i}")

    def series() -> set[tuple[str, tuple[tuple[str, str], ...]]]:
        return {(sample.name, tuple(sample.labels.items())) for metric in registry.collect() for sample in metric.samples}

    asyncio.run(ask(0, 2))
    before = series()
    asyncio.run(ask(2, 40))
    assert series() == before
    assert {dict(labels)["method"] for name, labels in before if name == "starling_api_requests_total"} == {"GET", "other"}
