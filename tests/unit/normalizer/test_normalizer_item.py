"""Every error of a call, and its message to the sender."""

import json

import pytest

from starling_common.outcome import Refused
from starling_common.values import MAX_ID_BYTES
from starling_items.item import (
    MAX_DEPTH,
    MAX_EVENT_NAME_CHARS,
    MAX_ITEM_CHARS,
    Identify,
    Item,
    View,
    check_item,
    deeper_than,
    read_item,
)


def validate(kind: str, text: str) -> Item | Refused:
    item = read_item(kind, text)
    return item if isinstance(item, Refused) else check_item(item, "ada") or item


@pytest.mark.parametrize(
    ("kind", "text", "code", "place"),
    [
        ("track", "", "bad_json", "the item"),
        ("track", "{", "bad_json", "the item"),
        ("track", '{"event": "A"} x', "bad_json", "the item"),
        ("track", '{"event": "A", "properties": {"n": NaN}}', "bad_json", "the item"),
        ("track", '{"event": "A", "properties": {"n": -Infinity}}', "bad_json", "the item"),
        ("track", '{"event": "\\ud800", "properties": {}}', "bad_json", "the item"),
        ("track", '{"event": "A", "properties": {"n": 1e999}}', "wrong_type", "properties"),
        ("track", "[]", "wrong_type", "item"),
        ("track", "null", "wrong_type", "item"),
        ("track", '"text"', "wrong_type", "item"),
        ("track", '{"event": 5}', "wrong_type", "event"),
        ("track", '{"event": "A", "properties": []}', "wrong_type", "properties"),
        ("track", '{"event": "A", "context": "web"}', "wrong_type", "context"),
        ("track", '{"event": "A", "timestamp": 1767268800000}', "wrong_type", "timestamp"),
        ("track", '{"event": "A", "sentAt": {}}', "wrong_type", "sentAt"),
        ("track", "{}", "missing_event", "event"),
        ("track", '{"event": null}', "missing_event", "event"),
        ("track", '{"event": "  "}', "missing_event", "event"),
        ("track", json.dumps({"event": "x" * (MAX_EVENT_NAME_CHARS + 1)}), "event_name_too_long", "event"),
        ("page", '{"name": {}}', "wrong_type", "name"),
        ("screen", '{"category": 1}', "wrong_type", "category"),
        ("identify", '{"traits": "pro"}', "wrong_type", "traits"),
        ("identify", '{"context": {"traits": ["pro"]}}', "wrong_type", "context.traits"),
        ("identify", '{"traits": {"computed": {"vip": true}}}', "reserved_trait", "traits.computed"),
        ("identify", '{"traits": {"computed": null}}', "reserved_trait", "traits.computed"),
        ("identify", '{"context": {"traits": {"computed": 1}}}', "reserved_trait", "context.traits.computed"),
        ("group", "{}", "missing_id", "groupId"),
        ("group", '{"groupId": " "}', "missing_id", "groupId"),
        ("group", '{"groupId": true}', "wrong_type", "groupId"),
        ("group", json.dumps({"groupId": "g" * (MAX_ID_BYTES + 1)}), "id_too_long", "groupId"),
        ("group", json.dumps({"groupId": "\u00e9" * (MAX_ID_BYTES // 2 + 1)}), "id_too_long", "groupId"),
        ("alias", json.dumps({"previousId": "p" * (MAX_ID_BYTES + 1)}), "id_too_long", "previousId"),
        ("alias", "{}", "missing_id", "previousId"),
        ("alias", '{"previousId": "ada"}', "alias_of_itself", "previousId"),
        ("track", '{"event": "A", "properties": {"a": ' + "[" * MAX_DEPTH + "]" * MAX_DEPTH + "}}", "too_deep", "the item"),
        ("track", "[" * 100_000, "too_deep", "the item"),
        ("track", json.dumps({"event": "A", "properties": {"a": "x" * MAX_ITEM_CHARS}}), "too_large", "the item"),
    ],
)
def test_a_wrong_call_is_refused_with_its_place_and_its_cure(kind: str, text: str, code: str, place: str) -> None:
    refused = validate(kind, text)
    assert isinstance(refused, Refused)
    assert refused.code == code
    assert refused.message.startswith(place)
    assert "send" in refused.message or "leave" in refused.message


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("track", json.dumps({"event": "x" * MAX_EVENT_NAME_CHARS, "properties": None, "context": None, "timestamp": None})),
        ("track", '{"event": "A", "name": 5, "traits": [], "groupId": 1.5}'),
        ("track", '{"event": "A", "properties": {"a": "' + "[{" * 200 + '\\"[["}}'),
        ("track", '{"event": "A", "properties": {"list": [' + ",".join(["{}"] * 200) + "]}}"),
        ("page", "{}"),
        ("identify", '{"traits": null}'),
        ("group", '{"groupId": 17}'),
        ("alias", '{"previousId": "a-1"}'),
    ],
)
def test_what_a_kind_of_call_does_not_use_is_nobodys_business(kind: str, text: str) -> None:
    assert isinstance(validate(kind, text), Item)


def test_depth_is_that_of_brackets_outside_texts() -> None:
    assert not deeper_than(3, '{"a": [{"b": "[[[[[["}]}')
    assert deeper_than(2, '{"a": [{"b": "[[[[[["}]}')
    assert not deeper_than(2, '[{"a\\"[[[": 1}, {"b": 2}, {"c\\\\": 3}]')


def test_traits_win_over_those_of_the_context() -> None:
    item = read_item("identify", '{"traits": {"a": 1}, "context": {"traits": {"a": 2, "b": 3}}}')
    assert isinstance(item, Identify)
    assert item.sent_traits() == {"a": 1, "b": 3}


def test_the_name_of_a_page_is_a_property() -> None:
    item = read_item("page", '{"name": "Home", "category": null, "properties": {"name": "other", "category": "Start"}}')
    assert isinstance(item, View)
    assert item.own_properties() == {"name": "Home", "category": "Start"}
