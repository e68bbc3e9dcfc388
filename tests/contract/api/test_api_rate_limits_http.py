"""The rate limits of a real API process. No broker and no database is needed for that."""

from collections.abc import Iterator

import httpx
import pytest

from starling_common.testing import Service, eventually, running
from tests.contract.api.lonely import ENVIRONMENT, connect, post

LIMITS = {
    "STARLING_TOKENS": "secret=admin:w,other=admin:w",
    "STARLING_TOKEN_READS_PER_SECOND": "0.4",
    "STARLING_TOKEN_WRITES_PER_SECOND": "0.001",
    "STARLING_ADDRESS_REQUESTS_PER_SECOND": "1000",
}
PATH = "/v1/segment-schema.json"


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running("starling_api", ENVIRONMENT | LIMITS, tmp_path_factory.mktemp("limited") / "log", ready=False) as service:
        with httpx.Client(transport=httpx.HTTPTransport(retries=8), trust_env=False) as http:
            http.get(f"{service.url}/healthz")
        yield service


def test_beyond_the_limit_of_its_token_a_client_has_to_wait(limited: Service) -> None:
    with httpx.Client(base_url=limited.url, trust_env=False, timeout=30, headers={"Authorization": "Bearer secret"}) as http:
        first = http.get(PATH)
        assert (first.status_code, first.headers["ratelimit-limit"], first.headers["ratelimit-remaining"]) == (200, "1", "0")
        refused = http.get(PATH)
        assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
        assert refused.headers["content-type"] == "application/problem+json"
        assert refused.headers["retry-after"] == refused.headers["ratelimit-reset"]
        assert http.get(PATH, headers={"Authorization": "Bearer other"}).status_code == 200
        assert [http.get(path).status_code for path in ("/healthz", "/metrics")] == [200, 200]
        eventually(lambda: http.get(PATH).status_code == 200, 60)


def test_a_refused_write_is_answered_before_its_body_is_read(limited: Service) -> None:
    with connect(limited) as client:
        client.sendall(post("/v1/nowhere", "secret"))
        assert client.recv(65_536).startswith(b"HTTP/1.1 404 ")
    with connect(limited) as client:
        client.sendall(post("/v1/segments", "secret"))
        assert client.recv(65_536).startswith(b"HTTP/1.1 429 ")
