"""The membership feed over HTTP: from records in the topic to pages and to a live stream, on the real broker."""

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer

from starling_common.kafka.clients import producer_config
from starling_common.testing import running
from starling_common.wire import Registry
from tests.conftest import Stack
from tests.contract.api.answers import is_problem
from tests.contract.api.conftest import Client
from tests.integration.projector.feed import Log
from tests.transactions import until_markers_are_written

USERS = [f"user-{number}" for number in range(12)]


@pytest.fixture
def log(stack: Stack, client: Client) -> Log:
    return Log(stack.brokers, Registry(stack.registry_url), client.workspace)


@pytest.fixture
def start(client: Client) -> str:
    """The end of the feed before the test writes: the topic holds other tests' records too."""
    cursor: str = client.call("GET", "/v1/feed?after=latest").json()["cursor"]
    return cursor


def read(client: Client, after: str, query: str = "") -> tuple[list[dict[str, Any]], str]:
    items: list[dict[str, Any]] = []
    while True:
        page = client.call("GET", f"/v1/feed?after={after}{query}", role="viewer").json()
        items += page["items"]
        after = page["cursor"]
        if page["next_cursor"] is None:
            return items, after
        assert page["next_cursor"] == after


def lasting(items: list[dict[str, Any]]) -> dict[str, list[int]]:
    return {user: [one["sequence"] for one in items if one["user_id"] == user] for user in USERS}


def test_pages_hold_every_change_once_and_in_sequence(client: Client, another: Client, log: Log, start: str) -> None:
    for sequence in (1, 2, 3):
        for user in USERS:
            log.change(user, "vip", sequence)
    log.change(USERS[0], "other", 1)
    for limit in (5, 1000):
        items, end = read(client, start, f"&segment=vip&limit={limit}")
        assert lasting(items) == {user: [1, 2, 3] for user in USERS}
        assert len(items) == 36
    assert items[0] | {"status": "ENTERED", "traits": {}, "effective_at": "1970-01-01T00:00:01.000Z"} == items[0]
    assert {one["segment_key"] for one in read(client, start)[0]} == {"vip", "other"}
    assert len(read(client, start, "&segment=vip&segment=other")[0]) == 37
    assert read(client, end)[0] == []
    assert read(another, start)[0] == []  # each workspace has its own
    log.change(USERS[0], "vip", 4)
    assert [one["sequence"] for one in read(client, end)[0]] == [4]
    assert len(client.call("GET", f"/v1/feed?cursor={start}&limit=7").json()["items"]) == 7  # as other lists have it


def test_records_of_an_aborted_transaction_are_absent(client: Client, stack: Stack, log: Log, start: str) -> None:
    producer = Producer(producer_config(stack.brokers, **{"transactional.id": f"test-{uuid.uuid4().hex}"}))
    producer.init_transactions(30)
    for sequence, ends in ((1, producer.abort_transaction), (1, producer.commit_transaction), (2, producer.abort_transaction)):
        producer.begin_transaction()
        record = log.membership("ada", "vip", sequence, effective_at=sequence)
        producer.produce("segments.membership", log.encode("segments.membership", record), f"{log.workspace}/ada".encode())
        producer.flush(30)
        ends(30)
    until_markers_are_written(stack.brokers, ["segments.membership"])
    items, end = read(client, start)
    assert [one["sequence"] for one in items] == [1]
    assert read(client, end) == ([], end)


def test_a_change_that_cannot_be_json_is_left_out_and_the_others_are_in_the_page(client: Client, log: Log, start: str) -> None:
    log.change("ada", "vip", 1)
    for traits in ("", "{", '{"a": NaN}', '{"a": "\\ud800"}'):
        log.write("segments.membership", "eve", log.membership("eve", "vip", 1) | {"traits": traits})
    for field in ("effective_at", "decided_at", "received_at"):
        log.write("segments.membership", "eve", log.membership("eve", "vip", 1) | {field: 2**62})
    log.change("ada", "vip", 2)
    items, _ = read(client, start)
    assert [(one["user_id"], one["sequence"]) for one in items] == [("ada", 1), ("ada", 2)]


def test_invalid_requests_are_refused(client: Client) -> None:
    assert is_problem(client.call("GET", "/v1/feed?after=nonsense"), 400, "bad_cursor")
    assert is_problem(client.call("GET", "/v1/feed?limit=0"), 400, "bad_parameter")
    assert is_problem(client.call("GET", "/v1/feed", role="unknown"), 401, "unauthorized")
    live = {"Accept": "text/event-stream", "Last-Event-ID": "nonsense"}
    assert is_problem(client.call("GET", "/v1/feed", **live), 400, "bad_cursor")


class Live:
    """A live feed as a browser reads it."""

    def __init__(self, answer: httpx.Response) -> None:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        self.lines = answer.iter_lines()
        self.last_id = ""

    def next(self) -> dict[str, Any]:
        for line in self.lines:
            field, _, value = line.partition(": ")
            if field == "id":
                self.last_id = value
            if field == "data":
                found: dict[str, Any] = json.loads(value)
                return found
        raise EOFError

    def wait_for(self, text: str) -> None:
        assert any(line == text for line in self.lines)


def follow(url: str, workspace: str, query: str = "", **headers: str) -> Any:
    headers |= {"Authorization": f"Bearer viewer-{workspace}", "Accept": "text/event-stream"}
    return httpx.stream("GET", f"{url}/v1/feed{query}", headers=headers, timeout=60, trust_env=False)


def test_a_live_feed_sends_changes_and_resumes(client: Client, log: Log, start: str) -> None:
    log.change("ada", "vip", 1)
    with follow(client.url, client.workspace, f"?after={start}&segment=vip") as answer:
        live = Live(answer)
        assert live.next()["sequence"] == 1
        for segment, sequence in (("vip", 2), ("other", 1), ("vip", 3)):
            log.change("ada", segment, sequence)
        assert [live.next()["sequence"] for _ in range(2)] == [2, 3]
    log.change("ada", "vip", 4)
    # A browser comes back to the same address; its last id counts.
    with follow(client.url, client.workspace, f"?after={start}&segment=vip", **{"Last-Event-ID": live.last_id}) as answer:
        assert Live(answer).next()["sequence"] == 4
    assert [one["sequence"] for one in read(client, live.last_id, "&segment=vip")[0]] == [4]


@pytest.fixture
def small(api_environment: dict[str, str], log_path: Path) -> Iterator[Any]:
    """An API that streams to one client at a time, and gives signs of life often."""
    environment = {**api_environment, "STARLING_FEED_STREAMS": "1", "STARLING_FEED_HEARTBEAT_SECONDS": "0.2"}
    with running("starling_api", environment, log_path) as service:
        yield service


def test_streams_are_bounded_and_end_with_the_process(client: Client, log: Log, small: Any) -> None:
    with follow(small.url, client.workspace, "?after=latest") as answer:
        live = Live(answer)
        live.wait_for(": heartbeat")
        with follow(small.url, client.workspace, "?after=latest") as refused:
            refused.read()
            assert is_problem(refused, 503, "too_many_streams")
    with following_when_free(small.url, client.workspace) as answer:  # a disconnected client releases its stream
        live = Live(answer)
        log.change("ada", "vip", 1)
        assert live.next()["user_id"] == "ada"
        assert small.stop() == 0
        with pytest.raises(EOFError):
            live.next()


@contextmanager
def following_when_free(url: str, workspace: str) -> Iterator[httpx.Response]:
    headers = {"Authorization": f"Bearer viewer-{workspace}", "Accept": "text/event-stream"}
    with httpx.Client(timeout=60, trust_env=False) as client:
        for _ in range(600):
            with client.stream("GET", f"{url}/v1/feed?after=latest", headers=headers) as answer:
                if answer.status_code == 200:
                    yield answer
                    return
        raise TimeoutError("no room was made")
