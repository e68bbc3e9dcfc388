"""Descriptions of imports: valid ones, and the first error of each invalid one."""

from typing import Any

import pytest

from starling_common.outcome import Done, Refused
from starling_rules.imports import parse_request, uri_error

EVENTS = {
    "key": "orders",
    "uri": "s3://shop/orders",
    "format": "csv",
    "kind": "events",
    "user_column": "customer",
    "event": "Order",
}


def test_a_valid_import_names_its_columns_once() -> None:
    document = EVENTS | {
        "time_column": "at",
        "id_column": "order_id",
        "columns": {"order_id": "properties.order", "sum": "properties.sum"},
    }
    found = parse_request(document)
    assert isinstance(found, Done)
    assert found.value.named() == ["customer", "at", "order_id", "sum"]


@pytest.mark.parametrize(
    ("change", "code", "place"),
    [
        ({"key": "Orders"}, "bad_key", "/key"),
        ({"format": "xlsx"}, "bad_import", "/format"),
        ({"colour": 1}, "bad_import", "the body"),
        ({"user_column": ""}, "missing_column", "/user_column"),
        ({"event": None}, "missing_event", "/event"),
        ({"event_column": "name"}, "missing_event", "/event"),
        ({"event": " "}, "missing_event", "/event"),
        ({"kind": "traits"}, "unexpected_event", "/event"),
        ({"delimiter": ";;"}, "bad_delimiter", "/delimiter"),
        ({"max_rejects": -1}, "bad_max_rejects", "/max_rejects"),
        ({"columns": {"a": "traits.a"}}, "bad_field", "/columns/a"),
        ({"columns": {"a": "properties.x", "b": "properties.x"}}, "bad_field", "/columns/b"),
        ({"uri": "/data/orders.csv"}, "bad_uri", "/uri"),
        ({"uri": "s3://"}, "bad_uri", "/uri"),
    ],
)
def test_an_invalid_import_is_refused_with_the_place(change: dict[str, Any], code: str, place: str) -> None:
    found = parse_request(EVENTS | change)
    assert isinstance(found, Refused)
    assert found.code == code
    assert found.message.startswith(place)


@pytest.mark.parametrize("document", [None, [], "orders", {}, {"key": 7}])
def test_what_is_no_import_is_refused(document: Any) -> None:
    assert isinstance(parse_request(document), Refused)


@pytest.mark.parametrize(
    ("uri", "cure"),
    [
        ("orders.csv", "begin it with one of"),
        ("ftp://host/orders.csv", "begin it with one of"),
        ("s3:///orders.csv", "no bucket"),
        ("s3://shop", "no path"),
        ("file://orders.csv", "no absolute path"),
        ("file:///imports/../etc/passwd", "without it"),
        ("file:///imports/%2E%2e/etc/passwd", "without it"),
        ("s3://shop/a.csv?endpoint_override=example.com", "without a query"),
    ],
)
def test_a_uri_without_scheme_bucket_or_path_is_refused(uri: str, cure: str) -> None:
    found = uri_error(uri)
    assert found is not None
    assert cure in found.message


@pytest.mark.parametrize("uri", ["file:///imports", "s3://shop/a/b.csv", "s3a://shop/a", "gs://shop/x", "file:///a%3F.csv"])
def test_a_complete_uri_is_accepted(uri: str) -> None:
    assert uri_error(uri) is None
