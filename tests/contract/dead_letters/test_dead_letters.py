"""The dead letter of every stage, field by field: the same fields with the same meaning wherever a record is refused."""

from typing import Any

import pytest

from starling_common.headers import Headers, header
from starling_common.kafka.topics import BEHAVIOUR, MEMBERSHIP, PROFILE, load_catalogue
from starling_common.time.instants import wall_clock_ms
from starling_normalizer.testing import received
from tests.contract.dead_letters.stages import ARRIVED_MS, KEY, OFFSET, PARTITION, STAGES, Letter, codec_of
from tests.unit.delivery.making import change
from tests.unit.ingest.rig import NOW, Edge
from tests.unit.tracker.providers import Providers, notification

RECEIVED_AT = ARRIVED_MS * 1000 + 456
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
HEADERS: Headers = [("correlation_id", b"c-header"), ("traceparent", TRACE.encode()), ("note", b"kept")]
INPUTS = dict.fromkeys(STAGES, BEHAVIOUR) | {
    "normalizer": "ingest.track", "segmenter": PROFILE, "messenger": PROFILE, "projector": MEMBERSHIP, "delivery": MEMBERSHIP,
}  # fmt: skip
OFFSETS = dict.fromkeys(STAGES, OFFSET) | {"normalizer": 0, "segmenter": 0, "messenger": 0}


def unreadable(stage: str) -> bytes:
    return codec_of(INPUTS[stage]).header + b"\xff"


def event(**more: Any) -> dict[str, Any]:
    record = {
        "received_at": RECEIVED_AT, "workspace": "acme", "user_id": "ada", "event_id": "e", "message_id": "m", "kind": "track",
        "name": "Order Completed", "event_time": ARRIVED_MS, "properties": "{}", "context": "{}", "traits": "{}",
        "correlation_id": "c-own",
    }  # fmt: skip
    return record | more


def profile(**more: Any) -> dict[str, Any]:
    record = {
        "received_at": RECEIVED_AT, "workspace": "acme", "user_id": "ada", "event_id": "e", "change": "MERGED",
        "event_time": ARRIVED_MS, "traits": "{}", "group_traits": "{}", "context": "{}", "correlation_id": "c-own",
    }  # fmt: skip
    return record | more


def of_change(**more: Any) -> dict[str, Any]:
    return change(workspace="acme", received_at=RECEIVED_AT, correlation_id="c-own", **more)


READABLE: dict[str, tuple[dict[str, Any], str]] = {
    "normalizer": (
        received("track", {"event": ""}, workspace="acme", received_at=RECEIVED_AT, correlation_id="c-own"), "missing_event",
    ),
    "segmenter": (profile(), "not_yet"),
    "messenger": (profile(), "not_yet"),
    "projector": (of_change() | {"user_id": ""}, "bad_identifier"),
    "delivery": (of_change(), "not_delivered"),
    "profiles": (event(properties="[1]"), "bad_event"),
    "views": (event(event_time=10**15), "bad_instant"),
}  # fmt: skip
"""A record that a stage can decode and refuses, and the code of its refusal."""


def refused(stage: str, value: bytes, headers: Headers) -> Letter:
    return STAGES[stage]()(value, headers)


def test_every_stage_with_dead_letters_is_here() -> None:
    known = {name.removesuffix(".dlq") for name in load_catalogue().topics if name.endswith(".dlq")}
    assert {*STAGES, "ingest", "tracker"} == known
    assert STAGES.keys() == READABLE.keys()


@pytest.mark.parametrize("stage", STAGES)
def test_an_unreadable_record(stage: str) -> None:
    record = refused(stage, unreadable(stage), HEADERS).record
    assert {name: value for name, value in record.items() if name not in {"message", "refused_at"}} == {
        "received_at": ARRIVED_MS * 1000,
        "stage": stage,
        "code": "broken_avro",
        "origin_topic": INPUTS[stage],
        "origin_partition": PARTITION,
        "origin_offset": OFFSETS[stage],
        "key": KEY,
        "value": unreadable(stage),
        "headers": dict(HEADERS),
        "workspace": "acme",
        "correlation_id": "c-header",
    }
    assert "the value is no" in record["message"]
    assert record["refused_at"] > ARRIVED_MS


@pytest.mark.parametrize("stage", STAGES)
def test_a_readable_record_has_its_own_time_and_correlation_id(stage: str) -> None:
    fields, code = READABLE[stage]
    letter = refused(stage, codec_of(INPUTS[stage]).encode(fields), [])
    record = letter.record
    assert (record["code"], record["workspace"], record["correlation_id"]) == (code, "acme", "c-own")
    assert (record["received_at"], record["key"]) == (RECEIVED_AT, KEY)
    assert letter.headers["correlation_id"] == "c-own"
    if stage != "delivery":
        assert record["value"] == codec_of(INPUTS[stage]).encode(fields)
        assert (record["origin_topic"], record["origin_partition"]) == (INPUTS[stage], PARTITION)


def test_an_undelivered_message_returns_to_the_retry_topic_with_its_correlation_id() -> None:
    record = refused("delivery", codec_of(MEMBERSHIP).encode(of_change()), []).record
    assert (record["origin_topic"], record["origin_partition"], record["origin_offset"]) == ("another.retry", -1, -1)
    assert codec_of("delivery.retry").decode(record["value"])["user_id"] == "ada"
    assert record["headers"]["correlation_id"] == b"c-own"


@pytest.mark.parametrize("stage", STAGES)
def test_the_record_on_the_topic_has_the_key_time_and_trace_of_its_source(stage: str) -> None:
    letter = refused(stage, unreadable(stage), HEADERS)
    assert (letter.key, letter.timestamp_ms, letter.headers["correlation_id"]) == (KEY, ARRIVED_MS, "c-header")
    if stage not in {"profiles", "views"}:  # Spark's sink writes headers of its own
        assert (letter.headers["traceparent"], letter.headers["produced_by"]) == (TRACE, stage)


@pytest.mark.parametrize("stage", STAGES)
def test_no_correlation_id_is_invented_for_a_record_without_one(stage: str) -> None:
    letter = refused(stage, unreadable(stage), [])
    assert letter.record["correlation_id"] is None
    assert letter.headers["correlation_id"], "every record on a topic has one"


@pytest.mark.parametrize("received_at", [-1, 0, 253_402_300_799_999_000, 2**63 - 1])
def test_a_time_that_the_broker_refuses_is_not_the_time_of_the_dead_letter_itself(received_at: int) -> None:
    sent = codec_of(MEMBERSHIP).encode(of_change() | {"received_at": received_at, "status": "ENTERED", "traits": "no JSON"})
    letter = refused("delivery", sent, [])
    assert 0 <= letter.timestamp_ms <= wall_clock_ms()


def test_a_rejected_item_of_the_ingest_api() -> None:
    edge = Edge().open()
    answer = edge.ask("POST", "/v1/track", {"userId": "ada"})
    [record] = edge.dead()
    [outgoing] = edge.log.records
    correlation_id = answer.headers["x-correlation-id"]
    assert {name: value for name, value in record.items() if name not in {"message", "headers"}} == {
        "received_at": NOW,
        "stage": "ingest",
        "code": "missing_event",
        "origin_topic": "/v1/track",
        "origin_partition": -1,
        "origin_offset": -1,
        "key": KEY,
        "value": b'{"userId":"ada"}',
        "workspace": "acme",
        "correlation_id": correlation_id,
        "refused_at": NOW // 1000,
    }
    assert record["headers"]["correlation_id"] == correlation_id.encode()
    assert (outgoing.key, outgoing.timestamp_ms) == (KEY, NOW // 1000)


def test_a_report_of_no_message_at_the_tracker() -> None:
    providers, body = Providers(), notification(None)
    assert providers.dsn(body).status == 200
    [outgoing] = providers.site.published.records
    record = codec_of(outgoing.topic).decode(codec_of(outgoing.topic).encode(outgoing.record))
    assert {name: value for name, value in record.items() if name not in {"received_at", "message", "headers", "refused_at"}} == {
        "stage": "tracker",
        "code": "unknown_message",
        "origin_topic": "/p/acme/dsn",
        "origin_partition": -1,
        "origin_offset": -1,
        "key": None,
        "value": body,
        "workspace": "acme",
        "correlation_id": record["headers"]["correlation_id"].decode(),
    }
    assert record["received_at"] // 1000 == record["refused_at"] > ARRIVED_MS
    assert outgoing.topic == "tracker.dlq"
    assert header(outgoing.headers, "correlation_id") == record["correlation_id"]
