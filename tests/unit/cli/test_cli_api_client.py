import json

import httpx
import pytest

from starling_cli.api_client import ApiClient, ApiRefused
from starling_cli.definitions import documents_in
from starling_local.errors import NotPossible


def client(answer: object) -> ApiClient:
    return ApiClient("http://api", "a-token", httpx.Client(transport=httpx.MockTransport(answer)))  # type: ignore[arg-type]


def test_pages_are_read_to_the_end_with_the_token() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.headers["authorization"] == "Bearer a-token"
        cursor = request.url.params.get("cursor")
        return httpx.Response(200, json={"items": [{"key": cursor or "first"}], "next_cursor": None if cursor else "second"})

    assert [segment["key"] for segment in client(answer).segments()] == ["first", "second"]


def test_a_new_segment_is_posted() -> None:
    calls: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        calls.append(request.method)
        if request.method == "GET":
            return httpx.Response(404, json={"code": "not_found", "message": "no such segment"})
        return httpx.Response(201, json={**json.loads(request.content), "version": 1})

    assert client(answer).apply({"key": "vips"})["version"] == 1
    assert calls == ["GET", "POST"]


def test_a_known_segment_gets_a_new_version_of_its_current_one() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, headers={"ETag": '"3"'}, json={"key": "vips"})
        assert (request.method, request.headers["if-match"]) == ("PUT", '"3"')
        return httpx.Response(200, json={"key": "vips", "version": 4})

    assert client(answer).apply({"key": "vips"})["version"] == 4


def test_pausing_and_resuming_are_posted() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"status": f"{request.method} {request.url.path}"})

    assert client(answer).change_status("vips", "pause")["status"] == "POST /v1/segments/vips/pause"


def test_every_error_of_a_definition_is_reported() -> None:
    errors = [{"pointer": "/where/op", "code": "unknown_operator", "message": "no operator 'gr'", "expected": "gt"}]
    body = {"code": "invalid_segment", "message": "the definition has 1 fault", "errors": errors}
    refused = httpx.Response(422, json=body)
    with pytest.raises(ApiRefused) as caught:
        client(lambda _request: refused).segment("x")
    assert str(caught.value) == (
        "the definition has 1 fault (HTTP 422, invalid_segment)\n  /where/op: unknown_operator: no operator 'gr'; expected gt"
    )


def test_not_yet_has_a_plain_message() -> None:
    not_yet = httpx.Response(501, json={"code": "not_yet", "message": "explain is not there yet"})
    with pytest.raises(ApiRefused, match=r"explain is not there yet \(HTTP 501, not_yet\)"):
        client(lambda _request: not_yet).explain("u", "k")


def test_an_unreachable_api_is_reported_with_the_next_step() -> None:
    def answer(_request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("connection refused")

    with pytest.raises(ApiRefused, match=r"http://api does not answer .* see `starling status`"):
        client(answer).segment("x")


def test_an_error_without_a_problem_document_is_reported_by_its_status() -> None:
    with pytest.raises(ApiRefused, match="HTTP 502"):
        client(lambda _request: httpx.Response(502, text="bad gateway")).segment("x")


def test_a_user_id_with_a_slash_stays_one_part_of_the_path() -> None:
    seen: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.url.raw_path.decode())
        return httpx.Response(200, json={})

    client(answer).explain("a/b", "k")
    assert seen == ["/v1/users/a%2Fb/explain/k"]


def test_a_file_holds_one_segment_or_a_list() -> None:
    assert documents_in('{"key": "a"}', "a segment", "segments") == [{"key": "a"}]
    assert documents_in('{"key": "ä"}'.encode(), "a segment", "segments") == [{"key": "ä"}]
    assert documents_in('[{"key": "a"}, {"key": "b"}]', "a segment", "segments") == [{"key": "a"}, {"key": "b"}]


@pytest.mark.parametrize("text", ["{", "[1]", '"a"', b'{"key": "\xff"}', b"\x80", "[" * 100_000])
def test_another_file_is_refused(text: str | bytes) -> None:
    with pytest.raises(NotPossible):
        documents_in(text, "a segment", "segments")


class Limited:
    """An API that answers the first requests with 429."""

    def __init__(self, refusals: int, retry_after: str | None = "7") -> None:
        self.refusals = refusals
        self.headers = {} if retry_after is None else {"Retry-After": retry_after}
        self.slept: list[float] = []
        self.api = ApiClient("http://api", "a-token", httpx.Client(transport=httpx.MockTransport(self.answer)), self.slept.append)

    def answer(self, request: httpx.Request) -> httpx.Response:
        if len(self.slept) < self.refusals:
            return httpx.Response(429, headers=self.headers, json={"code": "rate_limited", "message": "too many requests"})
        return httpx.Response(201, json=json.loads(request.content or b"{}"))


def test_a_request_beyond_the_rate_limit_waits_as_long_as_the_api_asks_for(capsys: pytest.CaptureFixture[str]) -> None:
    limited = Limited(refusals=2)
    assert limited.api.create("/v1/segments", {"key": "vips"}) == {"key": "vips"}
    assert limited.slept == [7.0, 7.0]
    assert capsys.readouterr().err.splitlines() == ["the API limits the rate of requests: the next attempt is in 7 s"] * 2


def test_without_a_pause_in_the_answer_a_request_waits_a_second() -> None:
    limited = Limited(refusals=1, retry_after=None)
    limited.api.create("/v1/segments", {})
    assert limited.slept == [1.0]


@pytest.mark.parametrize("retry_after", ["50", "3600"])
def test_a_request_waits_two_minutes_at_most_and_then_reports_the_answer(retry_after: str) -> None:
    limited = Limited(refusals=1_000, retry_after=retry_after)
    with pytest.raises(ApiRefused, match=r"too many requests \(HTTP 429, rate_limited\)"):
        limited.api.create("/v1/segments", {})
    assert sum(limited.slept) <= 120


def test_what_json_cannot_hold_is_for_the_api_to_refuse() -> None:
    sent: list[bytes] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request.content)
        assert request.headers["content-type"] == "application/json"
        return httpx.Response(422, json={"code": "invalid_definition", "detail": "/name is no text"})

    for name in ("\ud800", float("nan")):
        with pytest.raises(ApiRefused, match="/name is no text"):
            client(answer).create("/v1/webhooks", {"name": name})
    assert sent == [b'{"name": "\\ud800"}', b'{"name": NaN}']
