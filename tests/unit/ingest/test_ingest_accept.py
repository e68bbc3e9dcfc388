"""Bodies of every kind: what is taken, what is refused, and the words for it."""

import gzip
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from starling_common.outcome import Done, Outcome, Refused
from starling_common.wire import ReceivedItem
from starling_ingest.requests.accept import MAX_ITEMS, ParsedBody, Rejection, accept_batch, accept_single, body_write_key
from starling_ingest.requests.item import MAX_DEPTH, MAX_ITEM_BYTES
from starling_ingest.requests.request import MAX_BODY_BYTES

TRACK = {"type": "track", "event": "Order Completed", "userId": "u-1", "messageId": "m-1"}


def parsed(outcome: Outcome[ParsedBody]) -> ParsedBody:
    assert isinstance(outcome, Done), outcome
    return outcome.value


def refusal(outcome: Outcome[ParsedBody]) -> Refused:
    assert isinstance(outcome, Refused), outcome
    return outcome


def single(kind: str = "track", **fields: Any) -> ReceivedItem | Rejection:
    found = parsed(accept_single(json.dumps(fields).encode(), kind))
    assert len(found.items) + len(found.rejections) == 1
    return found.items[0] if found.items else found.rejections[0]


def batch(*items: Any, **envelope: Any) -> ParsedBody:
    return parsed(accept_batch(json.dumps({"batch": items, **envelope}).encode()))


def test_a_single_item_is_kept_as_it_was_sent() -> None:
    body = b' {"event": "E",\t"userId":"\xc3\xa9", "properties": {"n": 1.10}} '
    (item,) = parsed(accept_single(body, "track")).items
    assert (item.kind, item.user_id, item.anonymous_id, item.sent_at) == ("track", "é", None, None)
    assert item.item == body


def test_a_batch_keeps_order_kinds_and_the_common_sent_at() -> None:
    found = batch(TRACK, {"type": "identify", "anonymousId": "a", "sentAt": "2026-01-01T00:00:00Z"}, sentAt="2026-02-01")
    assert [(item.kind, item.user_id, item.anonymous_id, item.sent_at) for item in found.items] == [
        ("track", "u-1", None, "2026-02-01"),
        ("identify", None, "a", None),
    ]
    assert found.items[0].message_id == "m-1"
    assert json.loads(found.items[0].item) == TRACK


def test_a_missing_message_id_is_made_and_never_the_same() -> None:
    found = batch(
        *[{**TRACK, "messageId": missing} for missing in (None, "")], {k: v for k, v in TRACK.items() if k != "messageId"}
    )
    made = {item.message_id for item in found.items}
    assert len(made) == 3
    assert all(len(message_id) == 36 for message_id in made)


@pytest.mark.parametrize(
    ("kind", "fields", "code", "message"),
    [
        ("track", {"event": "e"}, "missing_id", "the item: neither userId nor anonymousId"),
        ("track", {"event": "e", "userId": "", "anonymousId": None}, "missing_id", "the item: neither"),
        ("track", {"userId": "u"}, "missing_event", "/event: missing"),
        ("track", {"userId": "u", "event": ""}, "missing_event", "/event: missing"),
        ("track", {"userId": "u", "event": 7}, "wrong_type", "/event: expected text, got a number"),
        ("group", {"userId": "u"}, "missing_group_id", "/groupId: missing"),
        ("group", {"userId": "u", "groupId": ""}, "missing_group_id", "/groupId: missing"),
        ("alias", {"userId": "u"}, "missing_previous_id", "/previousId: missing"),
        ("alias", {"anonymousId": "a", "previousId": "p"}, "missing_id", "/userId: missing"),
        ("page", {"userId": True}, "wrong_type", "/userId: expected text or a whole number, got true or false"),
        ("page", {"userId": 1.5}, "wrong_type", "/userId: expected text or a whole number, got a number with a fraction"),
        ("page", {"userId": {"id": 1}}, "wrong_type", "/userId: expected text or a whole number, got an object"),
        ("page", {"userId": 2**53}, "id_too_large", "/userId: a number beyond 2^53"),
        ("group", {"userId": "u", "groupId": -(2**80)}, "id_too_large", "/groupId: a number beyond 2^53"),
        ("page", {"userId": "u" * 513}, "id_too_long", "/userId: 513 bytes of UTF-8, at most 512 fit: send a hash of it"),
        ("page", {"userId": "é" * 257}, "id_too_long", "/userId: 514 bytes"),
        ("page", {"userId": "u", "anonymousId": "\U0001f600" * 129}, "id_too_long", "/anonymousId: 516 bytes"),
        ("group", {"userId": "u", "groupId": "g" * 600}, "id_too_long", "/groupId: 600 bytes"),
        ("track", {"userId": "u", "event": "e", "groupId": "g" * 600}, "id_too_long", "/groupId: 600 bytes"),
        ("alias", {"userId": "u", "previousId": "p" * 513}, "id_too_long", "/previousId: 513 bytes"),
        (
            "track",
            {"userId": "u", "event": "e" * 513},
            "event_too_long",
            "/event: 513 bytes of UTF-8, at most 512 fit: send the rest",
        ),
        ("page", {"userId": "u", "messageId": 5}, "wrong_type", "/messageId: expected text, got a number"),
        ("page", {"userId": "u", "messageId": "x" * 101}, "message_id_too_long", "/messageId: 101 characters, at most 100"),
        ("page", {"userId": "u", "timestamp": 1700000000}, "wrong_type", "/timestamp: expected text, got a number"),
        ("page", {"userId": "u", "originalTimestamp": []}, "wrong_type", "/originalTimestamp: expected text, got a list"),
        ("page", {"userId": "u", "sentAt": {}}, "wrong_type", "/sentAt: expected text, got an object"),
        ("page", {"userId": "u", "properties": []}, "wrong_type", "/properties: expected an object, got a list"),
        ("identify", {"userId": "u", "traits": "x"}, "wrong_type", "/traits: expected an object, got text"),
        ("identify", {"userId": "u", "context": {"traits": 3}}, "wrong_type", "/context/traits: expected an object, got a number"),
        ("page", {"userId": "u", "context": 3}, "wrong_type", "/context: expected an object, got a number"),
        ("page", {"userId": "u", "integrations": 3}, "wrong_type", "/integrations: expected an object, got a number"),
        ("page", {"userId": "u", "properties": {"a": "x" * MAX_ITEM_BYTES}}, "item_too_large", "at most 32768 fit"),
    ],
)
def test_a_fault_names_its_place_and_what_would_be_right(kind: str, fields: dict[str, Any], code: str, message: str) -> None:
    rejection = single(kind, **fields)
    assert isinstance(rejection, Rejection)
    assert rejection.code == code
    assert message in rejection.message
    assert json.loads(rejection.item) == fields


@pytest.mark.parametrize(
    ("item", "code", "message"),
    [
        ({"userId": "u", "event": "e"}, "missing_type", "/batch/1/type: missing, expected one of track, identify"),
        ({"userId": "u", "type": None}, "missing_type", "/batch/1/type: missing"),
        ({"userId": "u", "type": "merge"}, "unknown_type", "/batch/1/type: 'merge' is not one of"),
        ({"userId": "u", "type": 3}, "wrong_type", "/batch/1/type: expected text, got a number"),
        (3, "wrong_type", "/batch/1: expected an object, got a number"),
        (None, "wrong_type", "/batch/1: expected an object, got null"),
        ([], "wrong_type", "/batch/1: expected an object, got a list"),
        ("x", "wrong_type", "/batch/1: expected an object, got text"),
    ],
)
def test_a_faulty_item_leaves_the_others_of_its_batch_alone(item: Any, code: str, message: str) -> None:
    found = batch(TRACK, item, {**TRACK, "messageId": "m-3"})
    assert [item.message_id for item in found.items] == ["m-1", "m-3"]
    (rejection,) = found.rejections
    assert (rejection.index, rejection.code) == (1, code)
    assert rejection.message.startswith(message)


def test_an_error_keeps_the_known_ids() -> None:
    (rejection,) = batch({"type": "track", "anonymousId": "a", "messageId": "m", "event": 1}).rejections
    assert (rejection.message_id, rejection.identifier) == ("m", "a")
    (rejection,) = batch({"type": "track", "userId": [[]], "messageId": {"a": 1}}).rejections
    assert (rejection.message_id, rejection.identifier) == (None, None)


@pytest.mark.parametrize("longest", ["u" * 512, "é" * 256, "\U0001f600" * 128])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_ids_and_events_have_up_to_512_bytes(longest: str, ascii_only: bool) -> None:
    fields = dict.fromkeys(("userId", "anonymousId", "groupId", "previousId", "event"), longest)
    (item,) = parsed(accept_single(json.dumps(fields, ensure_ascii=ascii_only).encode(), "alias")).items
    assert item.user_id == longest


@pytest.mark.parametrize("fields", [{"userId": "u" * 513}, {"userId": "u" * 30_000, "anonymousId": "a", "event": 1}])
def test_a_fault_is_not_keyed_by_an_id_that_is_too_long(fields: dict[str, Any]) -> None:
    rejection = single("page", messageId="m", **fields)
    assert isinstance(rejection, Rejection)
    assert (rejection.message_id, rejection.identifier) == ("m", None)


@pytest.mark.parametrize(("sent", "kept"), [(0, "0"), (42, "42"), (-7, "-7"), (2**53 - 1, str(2**53 - 1)), ("42", "42")])
def test_whole_numbers_are_ids_as_text_everywhere(sent: Any, kept: str) -> None:
    item = single("group", userId=sent, groupId=sent, traits={"n": 1})
    assert isinstance(item, ReceivedItem)
    assert item.user_id == kept
    assert json.loads(item.item) == {"userId": kept, "groupId": kept, "traits": {"n": 1}}


@pytest.mark.parametrize(
    ("own", "shared", "merged"),
    [
        ({"ip": "1"}, {"ip": "2", "app": {"name": "x"}}, {"ip": "1", "app": {"name": "x"}}),
        ({"app": {"version": "2"}}, {"app": {"name": "x"}}, {"app": {"version": "2"}}),
        (None, {"ip": "2"}, {"ip": "2"}),
        ({"ip": None}, {"ip": "2"}, {"ip": None}),
        ({"ip": "1"}, None, {"ip": "1"}),
        ({"ip": "1"}, {}, {"ip": "1"}),
    ],
)
@pytest.mark.parametrize("name", ["context", "integrations"])
def test_fields_of_an_item_override_those_of_its_batch(name: str, own: Any, shared: Any, merged: Any) -> None:
    (item,) = batch({**TRACK, name: own}, **{name: shared}).items
    assert json.loads(item.item) == {**TRACK, name: merged}


def test_an_item_is_too_large_with_the_context_of_its_batch() -> None:
    context = {"note": "x" * (MAX_ITEM_BYTES - 300)}
    found = batch(TRACK, {**TRACK, "properties": {"a": "y" * 300}}, context=context)
    assert len(found.items) == 1
    assert [rejection.code for rejection in found.rejections] == ["item_too_large"]


def test_nesting_is_bounded_and_brackets_in_text_are_no_nesting() -> None:
    deepest = json.loads("[" * (MAX_DEPTH - 2) + "]" * (MAX_DEPTH - 2))
    assert isinstance(single(userId="u", event="e", properties={"a": deepest}), ReceivedItem)
    rejection = single(userId="u", event="e", properties={"a": [deepest]})
    assert isinstance(rejection, Rejection)
    assert rejection.code == "too_deep"
    wide = {"text": '[{\\"' * 200, "list": [{"id": str(n)} for n in range(200)]}
    assert isinstance(single(userId="u", event="e", properties=wide), ReceivedItem)


@pytest.mark.parametrize("accept", [lambda body: accept_single(body, "track"), accept_batch])
@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (b"", "not_json", "the body is empty"),
        (b"  \n", "not_json", "the body is empty"),
        (b"hello", "not_json", "the body is not JSON"),
        (b'{"event":"e","batch":[', "not_json", "the body is not JSON"),
        (b'{"event":"e","userId":"u"} x', "not_json", "trailing characters"),
        (b'{"event":"e","properties":{"a":NaN}}', "not_json", "NaN at byte 31 is no JSON number, send null"),
        (b'{"event":"e","properties":{"a":-Infinity}}', "not_json", "Infinity"),
        (b'{"event":"\xff\xfe","batch":[]}', "not_json", "not UTF-8"),
        (b'{"event":"\\ud800"}', "not_json", "the body is not JSON"),
        (b'\xef\xbb\xbf{"event":"e"}', "not_json", "the body is not JSON"),
        ('{"event":"e"}'.encode("utf-16"), "not_json", "not UTF-8"),
        (gzip.compress(b"{}", mtime=0), "not_json", "not UTF-8"),
        (b'{"batch":' + b"[" * 100_000, "too_deep", "nested too deeply"),
        (b'{"batch":[{"a":' + b"[" * 5_000 + b"]" * 5_000 + b"}]}", "too_deep", "nested too deeply"),
    ],
)
def test_a_body_that_is_no_json(accept: Any, body: bytes, code: str, message: str) -> None:
    refused = refusal(accept(body))
    assert refused.code == code
    assert message in refused.message


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (b"[]", "wrong_type", "the body: expected an object, got a list"),
        (b"{}", "wrong_type", "/batch: missing, expected a list of items"),
        (b'{"batch":null}', "wrong_type", "/batch: expected a list, got null"),
        (b'{"batch":{}}', "wrong_type", "/batch: expected a list, got an object"),
        (b'{"batch":[]}', "empty_batch", "/batch: expected at least one item"),
        (b'{"batch":[{}],"sentAt":5}', "wrong_type", "/sentAt: expected text, got a number"),
        (b'{"batch":[{}],"context":[]}', "wrong_type", "/context: expected an object, got a list"),
        (b'{"batch":[' + b",".join([b"{}"] * (MAX_ITEMS + 1)) + b"]}", "too_many_items", "2501 items, at most 2500"),
    ],
)
def test_a_batch_that_is_none(body: bytes, code: str, message: str) -> None:
    refused = refusal(accept_batch(body))
    assert refused.code == code
    assert message in refused.message


def test_the_largest_batch_is_taken() -> None:
    assert len(batch(*[TRACK] * MAX_ITEMS).items) == MAX_ITEMS


@pytest.mark.parametrize(
    ("body", "key"),
    [
        (b'{"writeKey":"k","userId":[]}', "k"),
        (b'{"batch":5,"writeKey":"k"}', "k"),
        (b'{"writeKey":null}', None),
        (b"{}", None),
    ],
)
def test_the_write_key_of_a_body_is_found_whatever_else_it_holds(body: bytes, key: str | None) -> None:
    assert body_write_key(body) == Done(key)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"writeKey":5}', "wrong_type"),
        (b"[]", "wrong_type"),
        (b"hello", "not_json"),
        (b'{"writeKey":"\xff"}', "not_json"),
        (b'{"a":' + b"[" * 100_000, "too_deep"),
    ],
)
def test_a_body_without_a_readable_key_states_the_reason(body: bytes, code: str) -> None:
    found = body_write_key(body)
    assert isinstance(found, Refused)
    assert found.code == code


@pytest.mark.parametrize("name", ["context", "integrations"])
def test_a_batch_weighs_what_it_is_with_its_context_in_every_item(name: str) -> None:
    envelope = {name: {"a": "x" * 4_000}}
    one, shared = (json.dumps({"batch": items, **envelope}).encode() for items in ([TRACK], [TRACK] * 2))
    each = (
        len(shared) - len(one) + len(json.dumps({"context": {}, "integrations": {}, name: envelope[name]}, separators=(",", ":")))
    )
    fit = 1 + (MAX_BODY_BYTES - len(one)) // each
    assert len(batch(*[TRACK] * fit, **envelope).items) == fit
    refused = refusal(accept_batch(json.dumps({"batch": [TRACK] * (fit + 1), **envelope}).encode()))
    assert refused.code == "body_too_large"
    assert f"{fit + 1} items, at most {MAX_BODY_BYTES} fit: put less into the batch's context" in refused.message


def test_a_context_of_one_item_counts_once() -> None:
    (rejection,) = batch(TRACK, context={"a": "x" * 300_000}).rejections
    assert rejection.code == "item_too_large"


def test_a_single_body_that_is_no_object_is_a_refusal() -> None:
    assert refusal(accept_single(b"[]", "track")).code == "wrong_type"
    assert refusal(accept_single(b"3", "track")).code == "wrong_type"


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
names = st.sampled_from(
    ["type", "event", "userId", "anonymousId", "groupId", "previousId", "messageId", "context", "properties", "sentAt"]
)
any_item = st.dictionaries(names, anything | st.sampled_from(["track", "group", "u"]), max_size=8) | anything


@given(
    st.lists(any_item, min_size=1, max_size=5),
    st.dictionaries(st.sampled_from(["context", "integrations"]), st.none() | st.just({"k": 1})),
)
def test_every_item_of_any_batch_is_either_taken_or_a_fault(items: list[Any], envelope: dict[str, Any]) -> None:
    found = batch(*items, **envelope)
    assert len(found.items) + len(found.rejections) == len(items)
    for rejection in found.rejections:
        assert json.loads(rejection.item) == items[rejection.index]
    for item in found.items:
        assert item.user_id or item.anonymous_id
        assert isinstance(msgspec.json.decode(item.item), dict)


@given(st.binary(max_size=200))
def test_no_bytes_make_it_raise(body: bytes) -> None:
    for outcome in (accept_batch(body), accept_single(body, "track")):
        assert isinstance(outcome, Done | Refused)
