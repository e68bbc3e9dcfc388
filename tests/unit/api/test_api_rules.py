"""The pure rules: statuses, references, documents, tokens, cursors, answers."""

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from starling_api.definitions.definition import Definition, plain_status, segment_status, used_segments, used_traits
from starling_api.definitions.kinds.audience import read_trait
from starling_api.definitions.kinds.kinds import TRAITS
from starling_api.definitions.kinds.webhooks import new_secret, read_webhook
from starling_api.http.access.auth import Role, Tokens
from starling_api.http.errors import BadRequest, IdempotencyKeyReused, ResourceBusy
from starling_api.http.idempotency import answer_once
from starling_api.http.openapi.bodies import body_schemas
from starling_api.http.pagination import PageOf, cut, make_cursor
from starling_api.ports import Stored
from starling_segments import DefinitionRefused, Known
from tests.unit.api.memory import MemoryAnswers

TRAIT_BODY = {"$ref": "#/components/schemas/TraitDefinition", "components": {"schemas": body_schemas()}}
SECRET = new_secret(b"s" * 32)
KNOWN = Known(segments={"vips": frozenset()}, taken_keys=frozenset({"old"}))


@pytest.mark.parametrize(
    ("stored", "in_force", "status"),
    [
        pytest.param("defined", {}, "backfilling", id="no report"),
        pytest.param("defined", {0: 3}, "backfilling", id="one partition has not reported"),
        pytest.param("defined", {0: 3, 1: None}, "backfilling", id="one does not know the segment"),
        pytest.param("defined", {0: 3, 1: 2}, "backfilling", id="one is at the version before"),
        pytest.param("defined", {0: 3, 1: 3}, "active", id="all are there"),
        pytest.param("defined", {0: 3, 1: 4}, "active", id="one is ahead of the read model"),
        pytest.param("archived", {0: 3, 1: 3}, "archived", id="archived stays archived"),
        pytest.param("paused", {}, "paused", id="paused stays paused"),
    ],
)
def test_a_segment_is_active_once_every_partition_applies_it(stored: str, in_force: dict[int, int | None], status: str) -> None:
    assert segment_status(Definition("segment", "vip", 3, stored, {}, 0, 0), in_force, partitions=2) == status


def test_other_kinds_are_active_at_once() -> None:
    assert plain_status(Definition("webhook", "w", 1, "defined", {}, 0, 0)) == "active"
    assert plain_status(Definition("webhook", "w", 1, "disabled", {}, 0, 0)) == "disabled"


def test_references_are_found_at_every_depth() -> None:
    where = {"any": [{"not": {"segment": "a"}}, {"all": [{"segment": "b"}, {"trait": "computed.ltv.eur", "op": "exists"}]}]}
    document = {"key": "x", "description": {"segment": "not here"}, "where": where}
    assert used_segments(document) == {"a", "b"}
    assert used_traits(document) == {"ltv"}
    assert used_traits({"where": {"trait": "plan", "op": "exists"}}) == frozenset()


WEBHOOK = {"key": "shop", "url": "https://shop.example/hook", "secret": SECRET}


@pytest.mark.parametrize(
    ("change", "pointer", "code"),
    [
        pytest.param({"key": None}, "", "missing_field", id="no key"),
        pytest.param({"key": "Shop"}, "/key", "bad_key", id="capital letter"),
        pytest.param({"key": "old"}, "/key", "key_taken", id="key in use"),
        pytest.param({"url": None}, "", "missing_field", id="no address"),
        pytest.param({"url": "ftp://shop.example"}, "/url", "wrong_type", id="another protocol"),
        pytest.param({"url": "https://"}, "/url", "wrong_type", id="no host"),
        pytest.param({"url": "https://a:b@shop.example"}, "/url", "wrong_type", id="credentials in the address"),
        pytest.param({"url": "https://shop.example:99999"}, "/url", "wrong_type", id="no such port"),
        pytest.param({"url": "https://[::1"}, "/url", "wrong_type", id="bracket left open"),
        pytest.param({"url": "https://a..b/"}, "/url", "wrong_type", id="a host with an empty label"),
        pytest.param({"url": f"https://{'x' * 64}.example"}, "/url", "wrong_type", id="a label that is too long"),
        pytest.param({"url": "https://☃.example"}, "/url", "wrong_type", id="a host that IDNA refuses"),
        pytest.param({"url": "https://xn--zzzz.example"}, "/url", "wrong_type", id="punycode of nothing"),
        pytest.param({"url": "https://[::1%25eth0]/"}, "/url", "wrong_type", id="an IPv6 zone"),
        pytest.param({"url": "https://shop.example:0"}, "/url", "wrong_type", id="port 0"),
        pytest.param({"url": "https://shop.example/\x7f"}, "/url", "wrong_type", id="a control character"),
        pytest.param({"url": "https://:b@shop.example"}, "/url", "wrong_type", id="a password alone"),
        pytest.param({"url": "https://@shop.example"}, "/url", "wrong_type", id="an empty user name"),
        pytest.param({"url": "https://shop.example/a b"}, "/url", "wrong_type", id="a space"),
        pytest.param({"url": "https://shop.example/" + "x" * 2000}, "/url", "wrong_type", id="too long"),
        pytest.param({"url": 5}, "/url", "wrong_type", id="a number"),
        pytest.param({"secret": "hunter2"}, "/secret", "wrong_type", id="a password"),
        pytest.param({"secret": "whsec_" + base64.b64encode(b"short").decode()}, "/secret", "wrong_type", id="too short"),
        pytest.param({"secret": "whsec_!!!"}, "/secret", "wrong_type", id="no base64"),
        pytest.param({"segments": []}, "/segments", "wrong_type", id="no segment at all"),
        pytest.param({"segments": ["vips", "unknown"]}, "/segments/1", "unknown_segment", id="a segment that is not there"),
        pytest.param({"segments": [["vips"]]}, "/segments/0", "unknown_segment", id="a list in the list"),
        pytest.param({"events": ["opened"]}, "/events", "wrong_type", id="an event that does not exist"),
        pytest.param({"events": []}, "/events", "wrong_type", id="no event"),
        pytest.param({"events": [["entered"]]}, "/events", "wrong_type", id="a list of lists"),
        pytest.param({"format": "xml"}, "/format", "wrong_type", id="a format that does not exist"),
        pytest.param({"format": ["standard"]}, "/format", "wrong_type", id="a list of formats"),
        pytest.param({"headers": ["X-Team"]}, "/headers", "wrong_type", id="a list of headers"),
        pytest.param({"headers": {f"X-{n}": "a" for n in range(11)}}, "/headers", "wrong_type", id="too many headers"),
        pytest.param({"headers": {"X-A": "a", "x-a": "b"}}, "/headers", "wrong_type", id="a header twice"),
        pytest.param({"headers": {"X A/B": "a"}}, "/headers/X A~1B", "wrong_type", id="no name of a header"),
        pytest.param({"headers": {"": "a"}}, "/headers/", "wrong_type", id="an empty name"),
        pytest.param({"headers": {"Content-Length": "1"}}, "/headers/Content-Length", "wrong_type", id="the connection's header"),
        pytest.param({"headers": {"Webhook-Id": "1"}}, "/headers/Webhook-Id", "wrong_type", id="the channel's header"),
        pytest.param({"headers": {"X-A": "a\r\nB: c"}}, "/headers/X-A", "wrong_type", id="a line break"),
        pytest.param({"headers": {"X-A": "é"}}, "/headers/X-A", "wrong_type", id="no ASCII"),
        pytest.param({"headers": {"X-A": " a"}}, "/headers/X-A", "wrong_type", id="a space at the start"),
        pytest.param({"headers": {"X-A": "a" * 1001}}, "/headers/X-A", "wrong_type", id="a value that is too long"),
        pytest.param({"headers": {"X-A": 5}}, "/headers/X-A", "wrong_type", id="a number as a value"),
        pytest.param({"headers": {"X-A": "***"}}, "/headers/X-A", "wrong_type", id="the mask of no stored value"),
        pytest.param({"batch": 100}, "/batch", "wrong_type", id="a number as a batch"),
        pytest.param({"batch": {"max_items": 0}}, "/batch/max_items", "wrong_type", id="an empty batch"),
        pytest.param({"batch": {"max_items": 101}}, "/batch/max_items", "wrong_type", id="a batch that is too large"),
        pytest.param({"batch": {"max_items": True}}, "/batch/max_items", "wrong_type", id="true as a number"),
        pytest.param({"batch": {"max_items": 1.5}}, "/batch/max_items", "wrong_type", id="a part of a change"),
        pytest.param({"batch": {"max_wait_ms": -1}}, "/batch/max_wait_ms", "wrong_type", id="a wait before the change"),
        pytest.param({"batch": {"max_wait_ms": 1001}}, "/batch/max_wait_ms", "wrong_type", id="a wait that is too long"),
        pytest.param({"batch": {"size/a": None}}, "/batch/size~1a", "unknown_field", id="a field that batches do not have"),
        pytest.param({"rate": 0}, "/rate", "wrong_type", id="no request at all"),
        pytest.param({"rate": 10_001}, "/rate", "wrong_type", id="a rate that is too high"),
        pytest.param({"rate": 1.5}, "/rate", "wrong_type", id="a part of a request"),
        pytest.param({"rate": True}, "/rate", "wrong_type", id="true as a rate"),
        pytest.param({"rate": "5"}, "/rate", "wrong_type", id="a text as a rate"),
        pytest.param({"a/b~c": 1}, "/a~1b~0c", "unknown_field", id="a field of another product"),
    ],
)
def test_each_error_of_a_webhook_is_reported(change: dict[str, Any], pointer: str, code: str) -> None:
    with pytest.raises(DefinitionRefused) as refused:
        read_webhook({**WEBHOOK, **change}, KNOWN)
    assert [(fault.pointer, fault.code) for fault in refused.value.errors] == [(pointer, code)]


@pytest.mark.parametrize(
    ("batch", "stored"),
    [
        ({}, {"max_items": 100, "max_wait_ms": 200}),
        ({"max_items": None}, {"max_items": 100, "max_wait_ms": 200}),
        ({"max_items": 1, "max_wait_ms": 0}, {"max_items": 1, "max_wait_ms": 0}),
    ],
)
def test_a_stored_batch_has_its_defaults(batch: dict[str, Any], stored: dict[str, int]) -> None:
    assert read_webhook({**WEBHOOK, "batch": batch}, KNOWN)["batch"] == stored


def test_a_webhook_without_batches_is_stored_as_before() -> None:
    assert "batch" not in read_webhook({**WEBHOOK, "batch": None}, KNOWN)


def test_a_refused_url_has_its_reason() -> None:
    with pytest.raises(DefinitionRefused) as refused:
        read_webhook({**WEBHOOK, "url": "https://a..b/"}, KNOWN)
    [fault] = refused.value.errors
    assert fault.message == "its host 'a..b' is no host name: Empty Label"
    assert "https://hooks.example.com/starling; labels of the host have 1 to 63 characters" in fault.expected


@pytest.mark.parametrize(
    "url", ["https://bücher.example/x", "http://my_service:8080", "https://[2001:db8::1]:8443/x?y=z", "https://shop.example./"]
)
def test_valid_hosts_are_stored_unchanged(url: str) -> None:
    assert read_webhook({**WEBHOOK, "url": url}, KNOWN)["url"] == url


def test_a_webhook_has_defaults() -> None:
    expected = {**WEBHOOK, "segments": None, "events": ["entered", "exited"]}
    assert read_webhook(WEBHOOK, KNOWN) == expected
    assert read_webhook({**WEBHOOK, "format": "standard", "headers": {}}, KNOWN) == expected


@pytest.mark.parametrize(
    ("change", "pointer", "code"),
    [
        pytest.param({"key": "no good"}, "/key", "bad_key", id="a space in the key"),
        pytest.param({"name": ""}, "/name", "wrong_type", id="an empty name"),
        pytest.param({"event": ""}, "/event", "wrong_type", id="an empty event"),
        pytest.param({"measure": {"median": "revenue"}}, "/measure/median", "unknown_field", id="no measure"),
        pytest.param({"measure": {"percentile": "revenue"}}, "/measure", "missing_field", id="a percentile without its rank"),
        pytest.param({"within": "1096d"}, "/within", "bad_duration", id="a window that is too long"),
        pytest.param({"within": "7d", "calendar": "today"}, "", "bad_window", id="two windows"),
        pytest.param({"calendar": "last_decade"}, "/calendar", "bad_window", id="no calendar period"),
        pytest.param({"timezone": "Mars/Olympus"}, "/timezone", "bad_timezone", id="no timezone"),
        pytest.param(
            {"where": {"property": "shop", "op": "eq", "value": {"trait": "computed.shop"}}},
            "/where/value/trait",
            "unknown_trait",
            id="built on a computed trait",
        ),
        pytest.param({"within": "soon"}, "/within", "bad_duration", id="no duration"),
        pytest.param({"op": "gte"}, "/op", "unknown_field", id="a condition is no measure"),
    ],
)
def test_each_error_of_a_computed_trait_is_reported(change: dict[str, Any], pointer: str, code: str) -> None:
    with pytest.raises(DefinitionRefused) as refused:
        read_trait({"key": "ltv", "event": "Order Completed", **change}, KNOWN)
    assert (pointer, code) in [(fault.pointer, fault.code) for fault in refused.value.errors]


@pytest.mark.parametrize(
    "document",
    [
        {"event": "Order Completed", "measure": {"percentile": "revenue", "q": 0.9}, "between_ago": ["60d", "30d"]},
        {"event": "Order Completed", "measure": {"most_frequent": "shop"}, "after": "2026-01-01"},
        {"event": "*", "measure": {"days": True}, "calendar": "last_month", "timezone": "Asia/Tokyo"},
        {"event": "Order Completed", "where": {"property": "shop", "op": "eq", "value": {"trait": "favourite_shop"}}},
        {"measure": {"ratio": {"of": {"event": "Refunded"}, "to": {"event": "Order Completed"}}}, "within": "1095d"},
    ],
    ids=str,
)
def test_every_measure_and_window_can_be_a_computed_trait(document: dict[str, Any]) -> None:
    kept = read_trait({"key": "t", **document}, KNOWN)
    assert kept.items() >= {"key": "t", "name": "t", **document}.items()
    assert document.keys() - {"key", "name"} <= TRAITS.meaning
    Draft202012Validator(TRAIT_BODY).validate({"key": "t", **document})


def test_the_schema_of_a_computed_trait_refuses_an_invalid_one() -> None:
    check = Draft202012Validator(TRAIT_BODY)
    assert check.is_valid({"key": "t", "event": "Buy"})
    for broken in ({}, {"within": "soon"}, {"op": "gte"}, {"measure": {"median": "x"}}, {"within": "1d", "calendar": "today"}):
        assert not check.is_valid({"key": "t", **({"event": "Buy"} if broken else {}), **broken})


def test_all_errors_of_a_computed_trait_are_reported_together() -> None:
    with pytest.raises(DefinitionRefused) as refused:
        read_trait({"key": "old", "name": 5, "event": "Buy", "within": "x"}, KNOWN)
    assert [fault.code for fault in refused.value.errors] == ["key_taken", "wrong_type", "bad_duration"]


def test_a_document_that_is_not_an_object_is_refused() -> None:
    for read in (read_trait, read_webhook):
        nonsense: object
        for nonsense in ([], "text", 5, None):
            with pytest.raises(DefinitionRefused):
                read(nonsense, KNOWN)


def test_tokens_identify_callers_and_names_do_not_reveal_tokens() -> None:
    tokens = Tokens("abc123=viewer:acme, def=admin:other")
    caller = tokens.caller("abc123")
    assert caller is not None
    assert (caller.workspace, caller.role) == ("acme", Role.VIEWER)
    assert "abc123" not in caller.name
    assert tokens.caller("abc12") is None
    assert tokens.caller("") is None


@pytest.mark.parametrize("text", ["abc", "abc=viewer", "abc=boss:acme", "abc=VIEWER:acme", "abc=viewer:Acme", "=viewer:acme"])
def test_an_invalid_token_setting_is_refused_without_its_token(text: str) -> None:
    with pytest.raises(ValueError, match="token 2") as refused:
        Tokens(f"good=viewer:acme,{text}")
    assert "abc" not in str(refused.value)


@given(st.lists(st.text(max_size=3), unique=True, max_size=8).map(sorted), st.integers(1, 4))
def test_pages_together_are_the_whole_list(rows: list[str], limit: int) -> None:
    seen: list[str] = []
    cursor: str | None = None
    while True:
        (after,) = PageOf(limit, cursor).after("rows", ("",))
        found = [row for row in rows if cursor is None or row > after][: limit + 1]
        page, cursor = cut(found, limit, "rows", lambda row: (row,))
        assert len(page) <= limit
        seen.extend(page)
        if cursor is None:
            break
    assert seen == rows


@pytest.mark.parametrize(
    "cursor",
    [
        pytest.param("", id="empty"),
        pytest.param("%%%", id="no base64"),
        pytest.param("YWJj", id="no JSON"),
        pytest.param("e30", id="an object"),
        pytest.param("ü", id="not ASCII"),
        pytest.param(make_cursor("others", ("a",)), id="of another list"),
        pytest.param(make_cursor("rows", (1,)), id="of another type"),
        pytest.param(make_cursor("rows", ("a", "b")), id="too long"),
    ],
)
def test_a_foreign_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(BadRequest) as refused:
        PageOf(10, cursor).after("rows", ("",))
    assert refused.value.code == "bad_cursor"


def test_a_repetition_returns_the_first_response() -> None:
    answers, given = MemoryAnswers(), []

    def act() -> Stored:
        given.append("once")
        return Stored(201, "{}", '"1"')

    for _ in range(2):
        assert answer_once(answers, "acme", "k", "print", act) == Stored(201, "{}", '"1"')
    assert given == ["once"]
    with pytest.raises(IdempotencyKeyReused):
        answer_once(answers, "acme", "k", "another print", act)
    assert answer_once(answers, "others", "k", "another print", act).status == 201


def test_a_failed_request_can_be_repeated_with_the_same_key() -> None:
    answers = MemoryAnswers()

    def fail() -> Stored:
        raise BadRequest("bad", "no")

    with pytest.raises(BadRequest):
        answer_once(answers, "acme", "k", "print", fail)
    assert answer_once(answers, "acme", "k", "corrected", lambda: Stored(204, "", None)).status == 204


def test_a_concurrent_request_with_the_same_key_is_refused() -> None:
    answers = MemoryAnswers()

    def act() -> Stored:
        with pytest.raises(ResourceBusy):
            answer_once(answers, "acme", "k", "print", lambda: Stored(201, "", None))
        return Stored(201, "mine", None)

    assert answer_once(answers, "acme", "k", "print", act).body == "mine"


def test_an_idempotency_key_has_a_length() -> None:
    for key in ("", "x" * 256):
        with pytest.raises(BadRequest):
            answer_once(MemoryAnswers(), "acme", key, "print", lambda: Stored(201, "", None))
