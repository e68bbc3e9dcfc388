"""The normalizer as a process of its own, on the real broker and registry."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from starling_common.kafka.source_watermarks import LONGEST_LEASE_MS
from starling_common.kafka.topics import AGGREGATES, BEHAVIOUR, OUTCOMES, PRODUCTS, PROFILE, WATERMARKS
from starling_common.time.instants import wall_clock_micros, wall_clock_ms
from starling_common.values import record_key
from starling_common.wire import Registry
from starling_items.enrich import Product
from starling_normalizer.catalog import Catalog
from tests.conftest import Stack
from tests.integration.normalizer.topics import DEAD_LETTERS, PATIENCE_SECONDS, Topics, Worker


@pytest.fixture
def topics(stack: Stack, workspace: str) -> Iterator[Topics]:
    opened = Topics(stack, workspace)
    yield opened
    opened.close()


@pytest.fixture
def start_worker(stack: Stack, tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    started: list[Worker] = []

    def start(failpoint: str = "") -> Worker:
        started.append(Worker(stack, tmp_path, failpoint))
        return started[-1]

    yield start
    for worker in started:
        worker.stop()


def test_the_catalog_follows_its_topic(stack: Stack, topics: Topics, workspace: str) -> None:
    def listed(product_id: str, **fields: Any) -> dict[str, Any]:
        nothing = {"category": None, "price": None, "brand": None, "name": None}
        return {"workspace": workspace, "product_id": product_id, "listed_at": wall_clock_ms(), **nothing, **fields}

    topics.write(PRODUCTS, record_key(workspace, "1"), listed("1", category="hats"))
    topics.write(PRODUCTS, record_key(workspace, "2"), listed("2", category="gone"))
    catalog = Catalog(stack.brokers, Registry(stack.registry_url).codec(PRODUCTS, "ProductListed"))
    catalog.start()
    try:
        assert catalog.find(workspace, "1") == Product("hats", None, None, None)
        topics.write(PRODUCTS, record_key(workspace, "2"), None)
        topics.write(PRODUCTS, record_key(workspace, "1"), b"broken")
        topics.write(PRODUCTS, record_key(workspace, "3"), listed("3", category="shoes", price=42.5))
        deadline = time.monotonic() + PATIENCE_SECONDS
        while catalog.find(workspace, "3") is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert catalog.find(workspace, "3") == Product("shoes", 42.5, None, None)
        assert catalog.find(workspace, "2") is None
        assert catalog.find(workspace, "1") == Product("hats", None, None, None)
        assert catalog.problem() is None
    finally:
        catalog.stop()


def test_items_become_events_across_a_restart(topics: Topics, workspace: str, start_worker: Callable[[], Worker]) -> None:
    product = {
        "workspace": workspace,
        "product_id": "1",
        "category": "hats",
        "price": 9.5,
        "brand": None,
        "name": None,
        "listed_at": 0,
    }
    topics.write(PRODUCTS, record_key(workspace, "1"), product)
    topics.send("identify", {"traits": {"plan": "pro"}}, message_id="m-1")
    topics.send("track", {"event": "Order Completed", "properties": {"product_id": "1"}}, message_id="m-2", anonymous_id="a-1")
    topics.write("ingest.track", record_key(workspace, "ada"), b"\x00\x00\x00\x00\x01")
    topics.send("track", "no JSON", message_id="m-3")
    topics.send("page", {"name": "Home"}, message_id="m-4")
    worker = start_worker()
    topics.read_until(lambda: len(topics.seen[OUTCOMES]) >= 4 and len(topics.seen[BEHAVIOUR]) >= 2)
    assert [(outcome["message_id"], outcome["outcome"]) for outcome in topics.seen[OUTCOMES]] == [
        ("m-1", "ACCEPTED"),
        ("m-2", "ACCEPTED"),
        ("m-3", "REFUSED"),
        ("m-4", "ACCEPTED"),
    ]
    purchase, page = topics.seen[BEHAVIOUR]
    assert json.loads(purchase["properties"]) == {"product_id": "1", "category": "hats", "price": 9.5}
    assert (page["name"], page["anonymous_ids"], json.loads(page["traits"])) == ("Page Viewed", ["a-1"], {"plan": "pro"})
    assert worker.stop() == 0

    topics.send("track", {"event": "Order Completed"}, message_id="m-2")
    computed = {
        "workspace": workspace,
        "user_id": "ada",
        "event_id": "e-1",
        "trait_key": "n",
        "trait_version": 1,
        "value": "1",
        "as_of": 7,
    }
    record = {**computed, "received_at": wall_clock_micros(), "correlation_id": "c-2"}
    topics.write(AGGREGATES, record_key(workspace, "ada"), record)
    topics.write(AGGREGATES, record_key(workspace, "ada"), record)
    topics.send("track", {"event": "Last"}, message_id="m-5")
    start_worker()
    topics.read_until(
        lambda: len(topics.seen[OUTCOMES]) >= 6 and len(topics.seen[BEHAVIOUR]) >= 3 and len(topics.seen[PROFILE]) >= 2
    )
    assert [outcome["outcome"] for outcome in topics.seen[OUTCOMES][4:]] == ["DUPLICATE", "ACCEPTED"]
    last = topics.seen[BEHAVIOUR][2:]
    assert [(event["name"], json.loads(event["traits"])) for event in last] == [("Last", {"plan": "pro", "computed": {"n": 1}})]
    assert [changed["change"] for changed in topics.seen[PROFILE]] == ["TRAITS", "COMPUTED"]


def test_what_is_refused_is_kept_whole(topics: Topics, workspace: str, start_worker: Callable[[], Worker]) -> None:
    key = record_key(workspace, "ada")
    topics.write("ingest.track", key, b"\x00\x00\x00\x00\x01")
    topics.send("track", {"event": ""}, message_id="m-1", correlation_id="c-8")
    start_worker()

    topics.read_until(lambda: len(topics.seen[DEAD_LETTERS]) >= 2 and len(topics.seen[OUTCOMES]) >= 1)
    by_code = {letter["code"]: letter for letter in topics.seen[DEAD_LETTERS]}
    assert by_code.keys() <= {"missing_event", "broken_avro", "unknown_schema"}
    assert len(by_code) == 2
    refused = by_code["missing_event"]
    source = topics.codecs["ingest.track"].decode(refused["value"])
    assert (source["message_id"], refused["stage"], refused["origin_topic"]) == ("m-1", "normalizer", "ingest.track")
    assert topics.seen[OUTCOMES][0]["message"] == refused["message"]


def test_an_edge_whose_clock_is_ahead_does_not_move_stream_time(
    topics: Topics, workspace: str, start_worker: Callable[[], Worker]
) -> None:
    ahead = wall_clock_micros() + 3_600_000_000
    topics.send("track", {"event": "Seen"}, message_id="m-1", received_at=ahead)
    topics.send("track", {"event": "Seen"}, message_id="m-2")
    worker = start_worker()
    topics.read_until(lambda: len(topics.seen[DEAD_LETTERS]) >= 1 and len(topics.seen[OUTCOMES]) >= 1)
    [letter], [outcome] = topics.seen[DEAD_LETTERS], topics.seen[OUTCOMES]
    assert (letter["code"], topics.codecs["ingest.track"].decode(letter["value"])["message_id"]) == ("clock_ahead", "m-1")
    assert (outcome["outcome"], outcome["message_id"]) == ("ACCEPTED", "m-2")
    metrics = httpx.get(f"http://127.0.0.1:{worker.port}/metrics", timeout=10).text
    times = [float(line.split()[-1]) for line in metrics.splitlines() if line.startswith("starling_stream_time_ms{")]
    assert times
    assert max(times) < ahead / 1000
    assert 'starling_stream_refused_total{code="clock_ahead"} 1.0' in metrics


@pytest.mark.parametrize("received_at", [-5_000_000, 253_402_300_000_000_000])
def test_a_record_with_a_time_that_the_broker_refuses_is_a_dead_letter(
    topics: Topics, workspace: str, start_worker: Callable[[], Worker], received_at: int
) -> None:
    computed = {
        "received_at": received_at, "workspace": workspace, "user_id": "ada", "event_id": "e-1", "trait_key": "spent",
        "trait_version": 1, "value": "1", "as_of": 0, "correlation_id": "c-1",
    }  # fmt: skip
    topics.write(AGGREGATES, record_key(workspace, "ada"), computed)
    topics.send("track", {"event": "Seen"}, message_id="m-1")
    start_worker()
    topics.read_until(lambda: len(topics.seen[DEAD_LETTERS]) >= 1 and len(topics.seen[OUTCOMES]) >= 1)
    [letter], [outcome] = topics.seen[DEAD_LETTERS], topics.seen[OUTCOMES]
    assert (letter["origin_topic"], outcome["outcome"]) == (AGGREGATES, "ACCEPTED")


def test_ids_beyond_the_bound_are_refused_and_the_user_goes_on(
    topics: Topics, workspace: str, start_worker: Callable[[], Worker]
) -> None:
    # Kept in the profile, these ids make a record larger than the broker takes.
    for number in range(40):
        anonymous_id = f"{number}-" + "x" * 30_000
        topics.send("track", {"event": "Seen"}, message_id=f"m-{number}", anonymous_id=anonymous_id)
    topics.send("track", {"event": "Last"}, message_id="m-last")
    start_worker()
    topics.read_until(lambda: len(topics.seen[OUTCOMES]) >= 41)
    assert [outcome["code"] for outcome in topics.seen[OUTCOMES]] == ["id_too_long"] * 40 + [None]
    [event] = topics.seen[BEHAVIOUR]
    assert (event["name"], event["anonymous_ids"]) == ("Last", [])


def test_an_item_that_makes_the_code_raise_is_a_dead_letter_and_stops_no_other(
    topics: Topics, start_worker: Callable[..., Worker]
) -> None:
    users = ["ada", "bob", "cy"]
    for number in range(12):
        name = "Poison Pill" if number == 4 else f"Event {number}"
        topics.send("track", {"event": name}, message_id=f"m-{number}", user_id=users[number % 3])
    worker = start_worker("raise_in_process:Poison Pill")
    topics.read_until(lambda: len(topics.seen[BEHAVIOUR]) >= 11 and len(topics.seen[DEAD_LETTERS]) >= 1)
    assert sorted(event["name"] for event in topics.seen[BEHAVIOUR]) == sorted(
        f"Event {number}" for number in range(12) if number != 4
    )
    [letter] = topics.seen[DEAD_LETTERS]
    assert (letter["code"], letter["key"].endswith(b"/bob")) == ("poison", True)
    assert letter["message"].startswith("ValueError: failpoint process (stack ")
    assert worker.stop() == 0


def test_a_record_waits_for_an_older_one_that_its_source_has_not_delivered(
    topics: Topics, start_worker: Callable[[], Worker], workspace: str
) -> None:
    start_worker()
    topics.send("screen", {"name": "the worker runs"}, message_id="screen")
    topics.read_until(lambda: len(topics.seen[OUTCOMES]) == 1)
    # A record that is appended more than 12 s after its `received_at`, or 10 s before it, is ordered by the append.
    source, now = f"test/{workspace}".encode(), wall_clock_micros() + 8_000_000

    def watermark(low: int) -> None:
        topics.write(
            WATERMARKS, source, {"low": low, "edge": workspace, "started_at": wall_clock_micros(), "lease_ms": LONGEST_LEASE_MS}
        )

    def write(kind: str, item: dict[str, Any], received_at: int) -> None:
        topics.send(kind, item, message_id=kind, received_at=received_at)

    watermark(now + 10)
    try:
        write("identify", {"traits": {"plan": "pro"}}, now + 20)
        write("page", {"name": "first"}, now)
        topics.read_until(lambda: len(topics.seen[OUTCOMES]) >= 2)
        write("track", {"event": "delayed"}, now + 10)
        watermark(now + 30)
        topics.read_until(lambda: len(topics.seen[OUTCOMES]) == 4)
    finally:
        topics.write(WATERMARKS, source, None)
    assert [outcome["message_id"] for outcome in topics.seen[OUTCOMES]] == ["screen", "page", "track", "identify"]
