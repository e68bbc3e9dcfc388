"""Calls of the Segment API with stores in memory."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, cast

import httpx
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from starling_api.app import build_app
from starling_api.http.access.auth import Tokens
from starling_api.http.access.rate_limits import RateLimits, Rates
from starling_common.http.rate_limits import Rate
from starling_common.telemetry.metrics import Metrics
from tests.unit.api.memory import World

SEGMENT = {"key": "vip", "name": "VIP", "where": {"everyone": True}}


class _TokensOfTheCall:
    """The tokens of the world that is called: the middleware has those of the services with which an application is built."""

    def __init__(self) -> None:
        self.world = World()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.world.services.tokens, name)


@cache
def _built(origins: Sequence[str]) -> tuple[FastAPI, _TokensOfTheCall]:
    tokens, unlimited = _TokensOfTheCall(), RateLimits(Rates(*[Rate.of(1e9)] * 5))
    services = replace(World().services, tokens=cast("Tokens", tokens), rate_limits=unlimited)
    return build_app(services, Metrics(CollectorRegistry()), dict, origins), tokens


def application(world: World, origins: Sequence[str] = ()) -> FastAPI:
    """Return the application with the stores of this world until the next call: to build one takes longer than most requests."""
    app, tokens = _built(tuple(origins))
    app.state.services, tokens.world = world.services, world
    return app


def call(world: World, method: str, path: str, *, origins: Sequence[str] = (), role: str = "rule", **more: Any) -> httpx.Response:
    app = application(world, origins)
    headers = {"Authorization": f"Bearer {role}"} | more.pop("headers", {})

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api") as client:
            return await client.request(method, path, headers=headers, **more)

    return asyncio.run(ask())


def defined() -> World:
    world = World()
    assert call(world, "POST", "/v1/segments", json=SEGMENT).status_code == 201
    return world
