"""Items as Protocol Buffers: accepted items, and the errors of refused ones."""

from typing import Any

import pytest
from google.protobuf import json_format

from starling_common.outcome import Done, Outcome, Refused
from starling_common.wire import Batch, Item, item_json, read_item
from starling_ingest.requests.accept import MAX_ITEMS, ParsedBody
from starling_ingest.requests.item import MAX_ITEM_BYTES
from starling_ingest.requests.messages import accept_batch_message, accept_single_message, message_write_key

GOOD = {"type": "track", "messageId": "m-1", "userId": "ada", "event": "Buy", "timestamp": "2026-01-01T00:00:00Z"}


def item(**members: Any) -> Item:
    return json_format.ParseDict(GOOD | members, Item())


def read(outcome: Outcome[ParsedBody]) -> ParsedBody:
    assert isinstance(outcome, Done), outcome
    assert outcome.value.protobuf
    return outcome.value


def test_a_call_goes_on_as_it_came() -> None:
    body = item(properties={"revenue": 5}, writeKey="key").SerializeToString()
    parsed = read(accept_single_message(body, "track"))
    (found,) = parsed.items
    assert (found.kind, found.message_id, found.user_id, found.anonymous_id, found.item) == ("track", "m-1", "ada", None, body)
    assert parsed.rejections == []


def test_a_field_of_a_later_version_is_kept() -> None:
    body = item().SerializeToString() + b"\xa2\x06\x03new"
    batch = read(accept_batch_message(b"\x0a" + bytes([len(body)]) + body))
    assert read(accept_single_message(body, "track")).items[0].item == body
    assert batch.items[0].item.endswith(b"\xa2\x06\x03new")
    assert read_item(batch.items[0].item).event == "Buy"


def test_fields_of_an_item_override_those_of_its_batch() -> None:
    batch = Batch(batch=[item(context={"app": {"version": "2"}, "ip": None}), item(sentAt="2026-01-01T00:00:02Z")])
    json_format.ParseDict(
        {"context": {"app": {"name": "shop"}, "ip": "10.0.0.1"}, "integrations": {"All": True}, "sentAt": "2026-01-01T00:00:01Z"},
        batch,
    )
    first, second = read(accept_batch_message(batch.SerializeToString())).items
    assert '"context":{"app":{"version":"2"},"ip":null},"integrations":{"All":true}' in item_json(first.item)
    assert '"context":{"app":{"name":"shop"},"ip":"10.0.0.1"}' in item_json(second.item)
    assert (first.sent_at, second.sent_at) == ("2026-01-01T00:00:01Z", None)


def test_a_bad_item_of_a_batch_is_kept_as_it_was_sent() -> None:
    bad = item(event="")
    batch = Batch(batch=[item(), bad])
    batch.context["ip"] = "10.0.0.1"
    parsed = read(accept_batch_message(batch.SerializeToString()))
    (rejection,) = parsed.rejections
    assert (rejection.index, rejection.code, rejection.message) == (
        1,
        "missing_event",
        "/batch/1/event: missing, expected the event's name",
    )
    assert (rejection.message_id, rejection.identifier, rejection.item) == ("m-1", "ada", bad.SerializeToString())
    assert len(parsed.items) == 1


@pytest.mark.parametrize(
    ("kind", "members", "code"),
    [
        ("track", {"userId": ""}, "missing_id"),
        ("group", {}, "missing_group_id"),
        ("alias", {}, "missing_previous_id"),
        ("alias", {"previousId": "bob", "userId": "", "anonymousId": "a-1"}, "missing_id"),
        ("track", {"messageId": "m" * 101}, "message_id_too_long"),
        ("track", {"userId": "u" * 513}, "id_too_long"),
        ("track", {"anonymousId": "é" * 257}, "id_too_long"),
        ("group", {"groupId": "g" * 513}, "id_too_long"),
        ("alias", {"previousId": "p" * 513}, "id_too_long"),
        ("track", {"event": "e" * 513}, "event_too_long"),
        ("track", {"properties": {"a": "x" * 33_000}}, "item_too_large"),
        ("identify", {"context": {"traits": "pro"}}, "wrong_type"),
    ],
)
def test_an_unusable_call_is_a_fault(kind: str, members: dict[str, Any], code: str) -> None:
    parsed = read(accept_single_message(item(**members).SerializeToString(), kind))
    assert [rejection.code for rejection in parsed.rejections] == [code]
    assert parsed.items == []


def test_ids_and_events_have_up_to_512_bytes() -> None:
    longest = dict.fromkeys(("userId", "anonymousId", "groupId", "previousId", "event"), "é" * 256)
    assert len(read(accept_single_message(item(**longest).SerializeToString(), "alias")).items) == 1


def test_a_fault_is_not_keyed_by_an_id_that_is_too_long() -> None:
    (rejection,) = read(accept_single_message(item(userId="u" * 30_000, event="").SerializeToString(), "track")).rejections
    assert (rejection.code, rejection.identifier) == ("missing_event", None)


@pytest.mark.parametrize("kind", ["", "merge"])
def test_an_item_of_a_batch_has_its_type(kind: str) -> None:
    parsed = read(accept_batch_message(Batch(batch=[item(type=kind)]).SerializeToString()))
    assert [rejection.code for rejection in parsed.rejections] == ["unknown_type" if kind else "missing_type"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"\x1a\x02\xff\xfe", "bad_protobuf"),
        (b"\x0a\xff", "bad_protobuf"),
        (b"no message", "bad_protobuf"),
        (b"", "empty_batch"),
        (Batch(batch=[item()] * (MAX_ITEMS + 1)).SerializeToString(), "too_many_items"),
        (Batch(batch=[item()] * 200, context={"a": "x" * 3_000}).SerializeToString(), "body_too_large"),
        (Batch(batch=[item()] * 200, integrations={"a": "x" * 3_000}).SerializeToString(), "body_too_large"),
        (b"\x1a\x03abc" + Batch(batch=[item()]).SerializeToString(), "bad_protobuf"),
        (Batch(batch=[item()]).SerializeToString() + b"\x0a\x03\x0a\xff", "bad_protobuf"),
        (b"\x12\x0b\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01" + Batch(batch=[item()]).SerializeToString(), "bad_timestamp"),
    ],
)
def test_a_body_that_is_no_batch_is_refused_whole(body: bytes, code: str) -> None:
    refused = accept_batch_message(body)
    assert isinstance(refused, Refused)
    assert refused.code == code


def test_an_item_weighs_what_it_is_with_the_context_of_its_batch() -> None:
    context = {"note": "x" * (MAX_ITEM_BYTES - 300)}
    small, large = item(), item(messageId="m-2", properties={"a": "y" * 300})
    parsed = read(accept_batch_message(Batch(batch=[small, large], context=context).SerializeToString()))
    assert len(parsed.items) == 1
    assert [(rejection.code, rejection.message_id, rejection.item) for rejection in parsed.rejections] == [
        ("item_too_large", "m-2", large.SerializeToString())
    ]


@pytest.mark.parametrize(
    ("body", "kind", "key"),
    [
        (item(writeKey="key").SerializeToString(), "track", "key"),
        (Batch(batch=[Item()], write_key="key").SerializeToString(), None, "key"),
        (Batch(batch=[item(writeKey="other")]).SerializeToString(), None, None),
    ],
)
def test_the_write_key_of_a_message(body: bytes, kind: str | None, key: str | None) -> None:
    assert message_write_key(body, kind) == Done(key)


@pytest.mark.parametrize("kind", ["track", None])
def test_a_body_without_a_readable_key_states_the_reason(kind: str | None) -> None:
    found = message_write_key(b"no message", kind)
    assert isinstance(found, Refused)
    assert found.code == "bad_protobuf"


def test_a_body_that_is_nested_too_deeply_is_refused_whole() -> None:
    value: dict[str, Any] = {}
    for _ in range(40):
        value = {"a": value}
    refused = accept_single_message(item(properties=value).SerializeToString(), "track")
    assert isinstance(refused, Refused)
    assert refused.code == "bad_protobuf"
