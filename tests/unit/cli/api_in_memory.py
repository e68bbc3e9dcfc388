"""The commands of the API against its application, with stores in memory."""

import asyncio
from types import ModuleType

import httpx
import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner, Result

from starling_cli.api_client import ApiClient
from starling_cli.app import build_app
from tests.unit.api.calls import application
from tests.unit.api.memory import World


def client(world: World) -> ApiClient:
    """Return a client with the token of an admin."""

    async def ask(request: httpx.Request) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(application(world))) as inner:
            return await inner.request(request.method, request.url, headers=request.headers, content=request.content)

    def answer(request: httpx.Request) -> httpx.Response:
        with capture_logs():  # they would be part of the output
            found = asyncio.run(ask(request))
        kept = {name: found.headers[name] for name in ("content-type", "etag") if name in found.headers}
        return httpx.Response(found.status_code, headers=kept, content=found.content, request=request)

    return ApiClient("http://api", "rule", httpx.Client(transport=httpx.MockTransport(answer)))


def run(monkeypatch: pytest.MonkeyPatch, commands: ModuleType, api: ApiClient, *words: str, text: str | None = None) -> Result:
    """Run `starling` with this API. `commands`: the module of the command; `text`: standard input."""
    monkeypatch.setattr(commands, "api_at", lambda _data_dir: api)
    return CliRunner().invoke(build_app(), list(words), input=text)
