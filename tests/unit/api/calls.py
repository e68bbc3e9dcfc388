"""Calls of the Segment API with stores in memory."""

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx
from prometheus_client import CollectorRegistry

from starling_api.app import build_app
from starling_common.telemetry.metrics import Metrics
from tests.unit.api.memory import World

SEGMENT = {"key": "vip", "name": "VIP", "where": {"everyone": True}}


def call(world: World, method: str, path: str, *, origins: Sequence[str] = (), role: str = "rule", **more: Any) -> httpx.Response:
    app = build_app(world.services, Metrics(CollectorRegistry()), dict, origins)
    headers = {"Authorization": f"Bearer {role}"} | more.pop("headers", {})

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api") as client:
            return await client.request(method, path, headers=headers, **more)

    return asyncio.run(ask())


def defined() -> World:
    world = World()
    assert call(world, "POST", "/v1/segments", json=SEGMENT).status_code == 201
    return world
