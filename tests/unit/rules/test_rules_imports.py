"""Descriptions of imports: valid ones, and every error of each invalid one."""

from typing import Any

import pytest

from starling_common.outcome import Done
from starling_rules.iceberg import iceberg_table, is_of_lake, is_permitted
from starling_rules.imports import Invalid, parse_request, uri_error
from starling_rules.jdbc import JdbcAddress, SourceError, jdbc_address

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
    accounts = {"kind": "accounts", "event": None, "account_column": "company", "columns": {"sector": "traits.industry"}}
    found = parse_request(EVENTS | accounts)
    assert isinstance(found, Done)
    assert found.value.named() == found.value.read() == ["customer", "company", "sector"]
    found = parse_request(EVENTS | {"kind": "lists", "event": None, "list_key": "fair", "id_column": "customer"})
    assert isinstance(found, Done)
    assert found.value.read() == ["customer"]
    found = parse_request(EVENTS)
    assert isinstance(found, Done)
    assert found.value.read() is None


@pytest.mark.parametrize(
    ("change", "code", "place"),
    [
        ({"key": "Orders"}, "bad_key", "/key"),
        ({"format": "xlsx"}, "bad_import", "/format"),
        ({"colour": 1}, "bad_import", "/colour"),
        ({"user_column": ""}, "missing_column", "/user_column"),
        ({"event": None}, "missing_event", "/event"),
        ({"event_column": "name"}, "missing_event", "/event"),
        ({"event": " "}, "missing_event", "/event"),
        ({"kind": "traits"}, "unexpected_event", "/event"),
        ({"kind": "accounts", "account_column": "company"}, "unexpected_event", "/event"),
        ({"kind": "accounts", "event": None}, "missing_column", "/account_column"),
        ({"kind": "accounts", "event": None, "account_column": ""}, "missing_column", "/account_column"),
        ({"kind": "accounts", "event": None, "account_column": "a", "columns": {"b": "properties.b"}}, "bad_field", "/columns/b"),
        ({"account_column": "company"}, "unexpected_column", "/account_column"),
        ({"list_key": "fair"}, "unexpected_list", "/list_key"),
        ({"user_column": None}, "missing_column", "/user_column"),
        ({"product_column": "sku"}, "unexpected_column", "/product_column"),
        ({"kind": "lists", "event": None}, "missing_list", "/list_key"),
        ({"kind": "lists", "event": None, "list_key": "Fair"}, "missing_list", "/list_key"),
        ({"kind": "lists", "list_key": "fair"}, "unexpected_event", "/event"),
        ({"kind": "lists", "event": None, "list_key": "fair", "columns": {"a": "traits.a"}}, "unexpected_column", "/columns"),
        ({"kind": "lists", "event": None, "list_key": "fair", "time_column": "at"}, "unexpected_column", "/time_column"),
        ({"kind": "lists", "event": None, "list_key": "fair", "id_column": "row"}, "unexpected_column", "/id_column"),
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
    assert isinstance(found, Invalid)
    assert [(one.code, one.pointer) for one in found.errors] == [(code, place)]
    assert all(one.message and one.expected for one in found.errors)


CATALOG = {"key": "shop", "uri": "s3://shop/products.csv", "format": "csv", "kind": "catalog", "product_column": "sku"}


@pytest.mark.parametrize(
    ("change", "code", "place"),
    [
        ({"product_column": None}, "missing_column", "/product_column"),
        ({"user_column": "customer"}, "unexpected_column", "/user_column"),
        ({"account_column": "company"}, "unexpected_column", "/account_column"),
        ({"event": "Order"}, "unexpected_event", "/event"),
        ({"time_column": "at"}, "unexpected_column", "/time_column"),
        ({"id_column": "row"}, "unexpected_column", "/id_column"),
        ({"columns": {"a": "product.colour"}}, "bad_field", "/columns/a"),
        ({"columns": {"a": "traits.price"}}, "bad_field", "/columns/a"),
        ({"columns": {"a": "product.price", "b": "product.price"}}, "bad_field", "/columns/b"),
    ],
)
def test_an_invalid_import_of_the_catalog_is_refused_with_the_place(change: dict[str, Any], code: str, place: str) -> None:
    assert errors_of(CATALOG | change) == {place: code}
    assert isinstance(parse_request(CATALOG), Done)


def test_a_product_is_read_with_its_fields_and_may_be_gone() -> None:
    found = parse_request(CATALOG | {"id_column": "sku", "columns": {"cost": "product.price"}})
    assert isinstance(found, Done)
    assert found.value.read() == ["sku", "cost"]
    change = {"uri": DATABASE["uri"], "format": "jdbc", "id_column": "sku", "jdbc": SOURCE | {"deletions": "any"}}
    gone = parse_request(CATALOG | change)
    assert isinstance(gone, Done)
    assert gone.value.finds_deletions()


SECRET = "planted-2b7e"
DATABASE = {
    "key": "crm",
    "uri": "jdbc:postgresql://db.example.com:5432/crm?sslmode=verify-full",
    "format": "jdbc",
    "kind": "traits",
    "user_column": "id",
    "id_column": "id",
}
SOURCE = {"user": "reader", "password": SECRET, "table": "crm.customers"}


def errors_of(document: Any) -> dict[str, str]:
    found = parse_request(document)
    assert isinstance(found, Invalid)
    assert SECRET not in str(found)
    return {one.pointer: one.code for one in found.errors}


def test_full_imports_of_traits_and_lists_find_deletions() -> None:
    cases: list[tuple[dict[str, Any], dict[str, str], bool]] = [
        ({}, {}, True),
        ({}, {"deletions": "any"}, True),
        ({}, {"deletions": "none"}, False),
        ({}, {"mode": "cursor", "cursor_column": "at"}, False),
        ({"kind": "events", "event": "Order"}, {}, False),
        ({"kind": "accounts", "account_column": "company"}, {}, False),
        ({"kind": "lists", "list_key": "fair"}, {}, True),
        ({"kind": "lists", "list_key": "fair"}, {"deletions": "any"}, True),
        ({"kind": "lists", "list_key": "fair"}, {"mode": "cursor", "cursor_column": "at"}, False),
    ]
    for change, source, finds in cases:
        found = parse_request(DATABASE | change | {"jdbc": SOURCE | source})
        assert isinstance(found, Done)
        assert found.value.finds_deletions() is finds
    for change, source in (({"kind": "events", "event": "Order"}, {}), ({}, {"mode": "cursor", "cursor_column": "at"})):
        document = DATABASE | change | {"jdbc": SOURCE | source | {"deletions": "any"}}
        assert errors_of(document) == {"/jdbc/deletions": "unexpected_deletions"}
    refused = parse_request(DATABASE | {"kind": "accounts", "account_column": "company", "jdbc": SOURCE | {"deletions": "any"}})
    assert isinstance(refused, Invalid)
    assert ["a group call also assigns its user" in one.message for one in refused.errors] == [True]


def test_a_database_is_read_with_its_own_columns() -> None:
    source = SOURCE | {"mode": "cursor", "cursor_column": "changed_at", "partition_column": "id", "partitions": 2}
    found = parse_request(DATABASE | {"jdbc": source, "columns": {"plan": "traits.plan"}})
    assert isinstance(found, Done)
    assert found.value.named() == ["id", "plan", "changed_at"]


@pytest.mark.parametrize(
    ("change", "code", "place"),
    [
        ({"table": None}, "bad_source", "/jdbc/table"),
        ({"query": "SELECT 1"}, "bad_source", "/jdbc/table"),
        ({"table": 'a"; DROP TABLE b'}, "bad_table", "/jdbc/table"),
        ({"table": "a..b"}, "bad_table", "/jdbc/table"),
        ({"table": None, "query": "DELETE FROM a"}, "bad_query", "/jdbc/query"),
        ({"table": None, "query": "SELECT 1; DROP TABLE a"}, "bad_query", "/jdbc/query"),
        ({"mode": "cursor"}, "bad_cursor", "/jdbc/cursor_column"),
        ({"cursor_column": "at"}, "bad_cursor", "/jdbc/cursor_column"),
        ({"mode": "stream"}, "bad_import", "/jdbc/mode"),
        ({"fetch_size": 0}, "bad_fetch_size", "/jdbc/fetch_size"),
        ({"partitions": 1}, "bad_partitions", "/jdbc/partitions"),
        ({"partition_column": ""}, "missing_column", "/jdbc/partition_column"),
        ({"user": ""}, "missing_user", "/jdbc/user"),
        ({"user": None}, "bad_import", "/jdbc/user"),
        ({"password": [SECRET]}, "bad_import", "/jdbc/password"),
        ({"driver": "x"}, "bad_import", "/jdbc/driver"),
    ],
)
def test_an_invalid_source_is_refused_with_the_place(change: dict[str, Any], code: str, place: str) -> None:
    assert errors_of(DATABASE | {"jdbc": SOURCE | change}) == {place: code}


ICEBERG = {
    "key": "crm", "uri": "iceberg:crm.customers", "format": "iceberg", "kind": "traits", "user_column": "id", "id_column": "id",
}  # fmt: skip


def test_an_iceberg_table_is_read_as_a_whole_or_by_a_cursor() -> None:
    whole = parse_request(ICEBERG | {"schedule": "15 * * * *"})
    assert isinstance(whole, Done)
    assert (whole.value.finds_deletions(), whole.value.read()) == (True, None)
    permitting = whole.value.with_deletions("any").source
    assert (permitting is not None and permitting.deletions, whole.value.with_deletions(None)) == ("any", whole.value)
    columns = {"plan": "traits.plan"}
    by_cursor = parse_request(ICEBERG | {"columns": columns, "iceberg": {"mode": "cursor", "cursor_column": "at"}})
    assert isinstance(by_cursor, Done)
    assert (by_cursor.value.finds_deletions(), by_cursor.value.read()) == (False, ["id", "plan", "at"])


@pytest.mark.parametrize(
    ("change", "errors"),
    [
        ({"id_column": None}, {"/id_column": "missing_column"}),
        ({"uri": "s3://shop/a"}, {"/uri": "bad_uri"}),
        ({"iceberg": {"mode": "cursor"}}, {"/iceberg/cursor_column": "bad_cursor"}),
        ({"iceberg": {"mode": "cursor", "cursor_column": ""}}, {"/iceberg/cursor_column": "bad_cursor"}),
        ({"iceberg": {"cursor_column": "at"}}, {"/iceberg/cursor_column": "bad_cursor"}),
        ({"iceberg": {"mode": "some", "table": "a"}}, {"/iceberg/mode": "bad_import", "/iceberg/table": "bad_import"}),
        ({"iceberg": {"mode": "cursor", "cursor_column": "a", "deletions": "any"}}, {"/iceberg/deletions": "unexpected_deletions"}),
        ({"jdbc": {"user": "reader", "table": "a"}}, {"/jdbc": "unexpected_jdbc"}),
        ({"format": "csv", "uri": "s3://shop/a", "iceberg": {}}, {"/iceberg": "unexpected_iceberg"}),
    ],
)
def test_an_invalid_iceberg_source_is_refused_with_the_place(change: dict[str, Any], errors: dict[str, str]) -> None:
    assert errors_of(ICEBERG | change) == errors


@pytest.mark.parametrize("name", ["customers", "crm.", ".customers", "crm.a b", "crm./etc", "crm.`a`", "crm.a'", "crm.../a", ""])
def test_an_iceberg_table_has_a_namespace_and_plain_names(name: str) -> None:
    assert isinstance(iceberg_table(f"iceberg:{name}"), SourceError)
    assert isinstance(iceberg_table("crm.customers"), SourceError)
    assert iceberg_table("iceberg:crm.eu-1.Customers_2") == "crm.eu-1.Customers_2"


def test_only_permitted_iceberg_tables_and_none_of_the_lake() -> None:
    permitted = ("crm", "shop.products")
    assert [is_permitted(one, permitted) for one in ("crm.a", "crm.eu.a", "shop.products")] == [True] * 3
    assert [is_permitted(one, permitted) for one in ("crmx.a", "shop.products2", "shop.orders", "CRM.a")] == [False] * 4
    assert not is_permitted("crm.a", ())
    of_lake = ("starling.behaviour_events", "STARLING.a", "starling_fixed.behaviour_events", "starling.behaviour_events.files")
    assert [is_of_lake(one, "starling") for one in of_lake] == [True] * 4
    assert [is_of_lake(one, "starling") for one in ("starlings.a", "crm.starling")] == [False] * 2


def test_all_errors_are_found_at_once() -> None:
    source = {"user": "", "password": SECRET, "mode": "cursor", "fetch_size": 0}
    document = DATABASE | {"uri": f"jdbc:postgresql://a:{SECRET}@db/crm", "kind": "events", "max_rejects": -1, "jdbc": source}
    del document["id_column"]
    assert errors_of(document | {"event": 7, "colour": 1}) == {
        "/uri": "bad_uri", "/event": "bad_import", "/id_column": "missing_column", "/max_rejects": "bad_max_rejects",
        "/jdbc/user": "missing_user", "/jdbc/table": "bad_source", "/jdbc/cursor_column": "bad_cursor",
        "/jdbc/fetch_size": "bad_fetch_size", "/colour": "bad_import",
    }  # fmt: skip
    assert errors_of(DATABASE) == {"/jdbc": "missing_jdbc"}
    assert errors_of(EVENTS | {"jdbc": SOURCE}) == {"/jdbc": "unexpected_jdbc"}
    assert set(errors_of({"jdbc": {}})) == {"/key", "/uri", "/format", "/kind", "/user_column", "/jdbc/user"}


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("jdbc:postgresql://db/crm", JdbcAddress("postgresql", "db")),
        ("jdbc:mariadb://[2001:db8::1]:3306/crm", JdbcAddress("mariadb", "2001:db8::1")),
        ("jdbc:postgresql://db/crm?sslmode=require&sslrootcert=/certs/ca.pem", JdbcAddress("postgresql", "db")),
        ("jdbc:postgresql://one,two/crm", None),
        ("jdbc:postgresql:crm", None),
        ("jdbc:h2:mem:x;INIT=RUNSCRIPT", None),
        ("jdbc:postgresql://db/crm?user=a&password=b", None),
        ("jdbc:postgresql://db/crm?socketFactory=org.example.Evil", None),
        ("jdbc:postgresql://db/crm?sslmode=require&loggerFile=/tmp/x", None),
        ("postgresql://db/crm", None),
    ],
)
def test_a_jdbc_url_names_one_host_and_loads_nothing(url: str, address: JdbcAddress | None) -> None:
    found = jdbc_address(url)
    assert found == address or (address is None and not isinstance(found, JdbcAddress))


@pytest.mark.parametrize("document", [None, [], "orders", {}, {"key": 7}])
def test_what_is_no_import_is_refused(document: Any) -> None:
    assert isinstance(parse_request(document), Invalid)


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
