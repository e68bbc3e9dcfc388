"""What a record means for the read models."""

import json
from typing import Any

import pytest

from starling_common.cassandra.read_models import AUDIT_PERIOD_MICROS, member_bucket, user_bucket
from starling_common.outcome import Done, Refused
from starling_projector.projection.destinations import Destination
from starling_projector.projection.rows import MAX_IDENTIFIER_BYTES, Position, Row, rows_of

CHANGE: dict[str, Any] = {
    "workspace": "acme",
    "user_id": "ada",
    "segment_key": "vip",
    "segment_version": 3,
    "status": "ENTERED",
    "sequence": 5,
    "effective_at": 1_000,
}
TOO_LONG = "x" * (MAX_IDENTIFIER_BYTES + 1)
DEFINITION: dict[str, Any] = {
    "workspace": "acme",
    "kind": "segment",
    "key": "vip",
    "version": 2,
    "action": "REVISED",
    "document": "{}",
    "actor": "me",
    "recorded_at": 77,
}

REPORT: dict[str, Any] = {
    "workspace": "acme", "user_id": "ada", "event_time": 5, "event_id": "e1", "received_at": 9, "correlation_id": "c",
    "delivery_id": "d", "channel": "webhook", "target_key": "crm", "outcome": "RETRYING", "attempt": 1, "status_code": 503,
    "detail": None, "segment_key": "vip", "campaign": None,
}  # fmt: skip


AUDITED: dict[str, Any] = {
    "recorded_at": 2 * AUDIT_PERIOD_MICROS, "workspace": "acme", "actor": "tok_1", "actor_name": "ci", "role": "editor",
    "method": "PUT", "path": "/v1/segments/vip", "resource": "segments", "key": "vip", "revision_before": None,
    "revision_after": 9, "correlation_id": "c",
}  # fmt: skip


ADA = ("acme", 7, user_bucket("ada"), "ada")
"""The key of a user's rows: all test records are of partition 7."""


def rows(topic: str, record: dict[str, Any], offset: int = 0) -> dict[Destination, Row]:
    outcome = rows_of(topic, record, Position(7, offset))
    assert isinstance(outcome, Done)
    return {row.destination: row for row in outcome.value}


def test_an_entry_is_a_member_written_at_its_sequence() -> None:
    found = rows("segments.membership", CHANGE)
    assert found == {
        Destination.MEMBER: Row(Destination.MEMBER, ("acme", "vip", member_bucket("ada"), "ada"), (1_000, 5), 5),
        Destination.USER_MEMBERSHIP: Row(Destination.USER_MEMBERSHIP, (*ADA, "vip"), (("ENTERED", 5, 1_000, 3),), 5),
    }


def test_an_exit_deletes_at_its_sequence() -> None:
    found = rows("segments.membership", {**CHANGE, "status": "EXITED", "sequence": 6})
    assert found[Destination.MEMBER_GONE] == Row(Destination.MEMBER_GONE, ("acme", "vip", member_bucket("ada"), "ada"), (), 6)
    assert Destination.MEMBER not in found


@pytest.mark.parametrize(
    ("action", "status"),
    [
        ("DEFINED", "defined"),
        ("REVISED", "defined"),
        ("RESUMED", "defined"),
        ("ARCHIVED", "archived"),
        ("PAUSED", "paused"),
        ("DISABLED", "disabled"),
    ],
)
def test_the_action_decides_the_status(action: str, status: str) -> None:
    found = rows("webhooks.definitions", {**DEFINITION, "action": action}, offset=41)
    assert found[Destination.DEFINITION][1:] == (("acme", "segment", "vip"), (2, status, "{}", "me", 77), 42)


def test_only_the_first_change_writes_the_creation_time() -> None:
    assert Destination.DEFINITION_CREATED not in rows("segments.definitions", DEFINITION)
    found = rows("segments.definitions", {**DEFINITION, "action": "DEFINED"}, offset=9)
    assert found[Destination.DEFINITION_CREATED][1:] == (("acme", "segment", "vip"), (77,), 10)


def test_an_event_is_one_row_however_often_it_is_read() -> None:
    event = {
        "workspace": "acme", "user_id": "ada", "event_time": 5, "event_id": "e1", "kind": "page", "name": "Page Viewed",
        "message_id": "m1", "properties": '{"n": "ü"}', "context": "{}", "received_at": 9, "correlation_id": "c",
    }  # fmt: skip
    _, key, (happened,), written = rows("events.behaviour", event, offset=6)[Destination.USER_EVENT]
    assert key == (*ADA, 5, "e1")
    assert happened[:3] == ("page", "Page Viewed", "m1")
    assert json.loads(happened[3]) == {"properties": {"n": "ü"}, "context": {}}
    assert happened[4:] == (9, "c")
    assert written == 7


def test_what_became_of_a_message_is_an_event_too() -> None:
    (happened,) = rows("events.delivery", REPORT)[Destination.USER_EVENT].columns
    assert happened[:3] == ("delivery", "Message Retrying", None)
    assert json.loads(happened[3])["properties"]["status_code"] == 503


def test_a_message_that_no_segment_asked_for_is_in_the_history_too() -> None:
    (happened,) = rows("events.delivery", {**REPORT, "segment_key": None})[Destination.USER_EVENT].columns
    assert json.loads(happened[3])["properties"]["segment_key"] is None


def test_a_change_of_the_audit_log_is_one_row_of_its_period_however_often_it_is_read() -> None:
    found = rows("audit.log", AUDITED, offset=4)
    assert found == {
        Destination.AUDIT: Row(
            Destination.AUDIT,
            ("acme", 2, 2 * AUDIT_PERIOD_MICROS, "segments", "vip", "c"),
            ("tok_1", "ci", "editor", "PUT", "/v1/segments/vip", None, 9),
            5,
        )
    }
    assert rows("audit.log", AUDITED, offset=8)[Destination.AUDIT].key == found[Destination.AUDIT].key
    before = rows("audit.log", {**AUDITED, "recorded_at": 2 * AUDIT_PERIOD_MICROS - 1})
    assert before[Destination.AUDIT].key[1] == 1


@pytest.mark.parametrize(
    ("topic", "record", "code"),
    [
        pytest.param("audit.log", {**AUDITED, "recorded_at": 2**62}, "bad_time", id="an audited change in a year that no date has"),
        pytest.param("audit.log", {**AUDITED, "correlation_id": TOO_LONG}, "bad_identifier", id="a request id longer than a key"),
        pytest.param("audit.log", {**AUDITED, "resource": ""}, "bad_identifier", id="no resource"),
        pytest.param("segments.definitions", {**DEFINITION, "action": "MELTED"}, "unknown_action", id="an action of tomorrow"),
        pytest.param("segments.definitions", {**DEFINITION, "recorded_at": 2**62}, "bad_time", id="a year that no date has"),
        pytest.param("segments.membership", {**CHANGE, "effective_at": -(2**62)}, "bad_time", id="an instant before the year 1"),
        pytest.param("segments.definitions", {**DEFINITION, "key": ""}, "bad_identifier", id="no key"),
        pytest.param("segments.membership", {**CHANGE, "user_id": ""}, "bad_identifier", id="no user"),
        pytest.param(
            "events.delivery",
            {"workspace": "acme", "user_id": "ada", "segment_key": None, "event_id": TOO_LONG},
            "bad_identifier",
            id="an event id longer than a row's key",
        ),
        pytest.param(
            "segments.membership",
            {**CHANGE, "user_id": TOO_LONG},
            "bad_identifier",
            id="longer than a row's key",
        ),
        pytest.param(
            "events.profile", {"workspace": "a", "user_id": "b", "traits": '{"a": 1, "b"}'}, "bad_json", id="broken traits"
        ),
        pytest.param("events.profile", {"workspace": "a", "user_id": "b", "traits": "[]"}, "bad_json", id="traits in a list"),
        pytest.param(
            "events.behaviour", {"workspace": "a", "user_id": "b", "properties": "{", "context": "{}"}, "bad_json", id="broken JSON"
        ),
        pytest.param("stream.clock", {}, "unknown_topic", id="a topic without a read model"),
    ],
)
def test_what_fits_no_row_is_refused(topic: str, record: dict[str, Any], code: str) -> None:
    outcome = rows_of(topic, record, Position(7, 0))
    assert isinstance(outcome, Refused)
    assert outcome.code == code


def test_an_identifier_of_the_greatest_length_is_taken() -> None:
    assert isinstance(rows_of("segments.membership", {**CHANGE, "user_id": "x" * MAX_IDENTIFIER_BYTES}, Position(7, 0)), Done)


def test_a_definition_is_written_after_its_version() -> None:
    order = list(Destination)
    assert order.index(Destination.DEFINITION_VERSION) < order.index(Destination.DEFINITION)
    assert order.index(Destination.DEFINITION_CREATED) < order.index(Destination.DEFINITION)


def test_buckets_never_move() -> None:
    assert [member_bucket(user) for user in ("ada", "carol", "über", "")] == [8, 3, 8, 0]
