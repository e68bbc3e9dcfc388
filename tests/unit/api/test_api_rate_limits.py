"""The rate limits of the API, with stores in memory and a clock of the test's own."""

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from starling_api.app import build_app
from starling_api.http.access.auth import Tokens
from starling_api.http.access.rate_limits import RateLimits, Rates, is_read
from starling_common.http.rate_limits import Rate
from starling_common.telemetry.metrics import Metrics
from tests.unit.api.calls import SEGMENT
from tests.unit.api.memory import World

TOKENS = Tokens("one=marketer:acme,two=admin:acme,three=admin:other")
SLOW = 0.001
PLENTY = Rate.of(1e6)
READS_WITH_A_BODY = {"look_up_memberships", "preview_segment", "diff_segment", "check_policy"}
MARKETER = "one"
ORIGIN = "https://console.example"


@dataclass
class Api:
    """An API with the given limits; `now` is its clock."""

    rates: Rates
    now: float = 1000.0
    world: World = field(default_factory=World)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def __post_init__(self) -> None:
        services = replace(self.world.services, tokens=TOKENS, rate_limits=RateLimits(self.rates, lambda: self.now))
        self.app = build_app(services, Metrics(self.registry), dict, [ORIGIN])

    def ask(
        self, path: str, token: str | None = MARKETER, *, method: str = "GET", client: str = "10.0.0.1", **more: Any
    ) -> httpx.Response:
        headers = more.pop("headers", {}) | ({"Authorization": f"Bearer {token}"} if token else {})

        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, client=(client, 1))
            async with httpx.AsyncClient(transport=transport, base_url="http://api") as http:
                return await http.request(method, path, headers=headers, **more)

        return asyncio.run(ask())

    def refused(self, scope: str, kind: str) -> float | None:
        return self.registry.get_sample_value("starling_api_rate_limited_total", {"scope": scope, "kind": kind})


def rates(**slow: Rate) -> Rates:
    names = ("workspace_reads", "workspace_writes", "token_reads", "token_writes", "address")
    return Rates(**(dict.fromkeys(names, PLENTY) | slow))


def quota(answer: httpx.Response) -> tuple[str | None, ...]:
    return tuple(answer.headers.get(f"RateLimit-{name}") for name in ("Limit", "Remaining", "Reset"))


def test_a_burst_of_reads_passes_and_then_it_is_429_until_the_time_has_passed() -> None:
    api = Api(rates(token_reads=Rate(0.1, 3)))
    assert [quota(api.ask("/v1/segments")) for _ in range(3)] == [("3", "2", "10"), ("3", "1", "20"), ("3", "0", "30")]
    answer = api.ask("/v1/segments")
    assert (answer.status_code, answer.headers["content-type"]) == (429, "application/problem+json")
    assert answer.json()["code"] == "rate_limited"
    assert "token" in answer.json()["message"]
    assert (answer.headers["Retry-After"], quota(answer)) == ("10", ("3", "0", "10"))
    assert api.refused("token", "read") == 1
    api.now += 10
    assert api.ask("/v1/segments").status_code == 200
    assert api.ask("/v1/segments").status_code == 429


def test_reads_and_writes_have_buckets_of_their_own() -> None:
    api = Api(rates(token_reads=Rate(SLOW, 2), token_writes=Rate(SLOW, 1)))
    assert api.ask("/v1/segments", method="POST", json=SEGMENT).status_code == 201
    assert api.ask("/v1/segments/vip/pause", method="POST").status_code == 429
    assert [api.ask("/v1/segments/vip").status_code for _ in range(3)] == [200, 200, 429]
    assert (api.refused("token", "write"), api.refused("token", "read")) == (1, 1)


def test_another_token_is_not_concerned_but_the_workspace_has_a_limit_too() -> None:
    api = Api(rates(token_reads=Rate(SLOW, 2), workspace_reads=Rate(SLOW, 3)))
    assert [api.ask("/v1/segments", "one").status_code for _ in range(3)] == [200, 200, 429]
    assert [api.ask("/v1/segments", "two").status_code for _ in range(2)] == [200, 429]
    assert api.ask("/v1/segments", "three").status_code == 200
    assert (api.refused("token", "read"), api.refused("workspace", "read")) == (1, 1)


def test_a_refused_request_takes_nothing() -> None:
    api = Api(rates(token_reads=Rate(SLOW, 1), workspace_reads=Rate(SLOW, 2)))
    assert [api.ask("/v1/segments", "one").status_code for _ in range(20)] == [200] + [429] * 19
    assert api.ask("/v1/segments", "two").status_code == 200


def test_without_a_known_token_the_address_has_the_limit() -> None:
    api = Api(rates(address=Rate(SLOW, 3)))
    assert [api.ask("/v1/segments", token).status_code for token in (None, "guess-1", "guess-2", "guess-3")] == [401, 401, 401, 429]
    assert api.ask("/docs", None).status_code == 429
    assert api.ask("/v1/segments", None, client="10.0.0.2").status_code == 401
    assert api.ask("/v1/segments", "one").status_code == 200
    assert api.refused("address", "read") == 2


def test_two_addresses_of_one_ipv6_network_share() -> None:
    api = Api(rates(address=Rate(SLOW, 1)))
    addresses = ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"]
    assert [api.ask("/v1/segments", None, client=address).status_code for address in addresses] == [401, 429, 401]


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_probes_are_exempt(path: str) -> None:
    api = Api(rates(address=Rate(SLOW, 1)))
    for _ in range(3):
        answer = api.ask(path, None)
        assert (answer.status_code, quota(answer)) == (200, (None, None, None))


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/segments", 200),
        ("/v1/segments?limit=x", 400),
        ("/v1/segments/none", 404),
        ("/nowhere", 404),
        ("/v1/users/u/none", 404),
    ],
)
def test_every_answer_has_its_quota(path: str, status: int) -> None:
    answer = Api(rates(token_reads=Rate(SLOW, 9))).ask(path)
    assert (answer.status_code, quota(answer)) == (status, ("9", "8", "1000"))


def test_an_internal_error_has_its_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api(rates(token_reads=Rate(SLOW, 9)))

    def fail(*_arguments: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(type(api.app.state.services.queries), "definitions", fail)
    answer = api.ask("/v1/segments")
    assert (answer.status_code, quota(answer)) == (500, ("9", "8", "1000"))


def test_an_answer_with_retry_after_names_the_same_instant_twice() -> None:
    answer = Api(rates(), world=World(broker_is_down=True)).ask("/v1/segments", method="POST", json=SEGMENT)
    assert (answer.status_code, quota(answer)[1:]) == (503, ("0", answer.headers["Retry-After"]))


def test_browsers_may_read_the_quota_and_preflights_are_free() -> None:
    api = Api(rates(token_reads=Rate(SLOW, 1), address=Rate(SLOW, 1)))
    asked = {"Origin": ORIGIN, "Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "authorization"}
    assert [api.ask("/v1/segments", None, method="OPTIONS", headers=asked).status_code for _ in range(3)] == [200] * 3
    for status in (200, 429):
        answer = api.ask("/v1/segments", headers={"Origin": ORIGIN})
        exposed = answer.headers["access-control-expose-headers"].split(", ")
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (status, ORIGIN)
        assert {"Retry-After", "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"} <= set(exposed)


def test_what_changes_nothing_is_a_read() -> None:
    paths = build_app(World().services, Metrics(CollectorRegistry()), dict).openapi()["paths"].items()
    operations = [(verb, path, one["operationId"]) for path, item in paths for verb, one in item.items()]
    reads = {name for verb, path, name in operations if is_read(verb.upper(), path.replace("{key}", "a").replace("{user_id}", "u"))}
    assert reads == {name for verb, _, name in operations if verb == "get"} | READS_WITH_A_BODY
