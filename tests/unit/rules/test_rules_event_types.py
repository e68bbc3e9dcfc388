"""Event types: what a stored document declares, and the tables of a statement."""

from typing import Any

import pytest

from starling_rules.sql.event_types import COLUMNS, EventType, Property, event_type_of, with_event_types
from starling_rules.sql.statement import sql_errors, tables_read

DOCUMENT: dict[str, Any] = {
    "key": "order", "event": "Order Completed",
    "properties": [{"name": "orderId", "type": "string"}, {"name": "tax", "type": "number", "archived": True}],
}  # fmt: skip
ORDER = EventType("order", "Order Completed", [Property("orderId", "string")])


def test_an_archived_property_has_no_column() -> None:
    assert event_type_of(DOCUMENT) == ORDER
    assert with_event_types([ORDER])["event_order"] == (*COLUMNS, "orderid")


@pytest.mark.parametrize(
    "change",
    [
        {"key": "a-b"}, {"key": None}, {"event": 5}, {"properties": None},
        {"properties": [{"name": "a", "type": "number"}, {"name": "A", "type": "string"}]},
        {"properties": [{"name": "Event_Time", "type": "number"}]},
    ],
)  # fmt: skip
def test_a_document_of_another_producer_declares_no_table(change: dict[str, Any]) -> None:
    assert event_type_of(DOCUMENT | change) is None


def test_columns_are_found_in_any_case() -> None:
    tables = with_event_types([ORDER])
    assert sql_errors("SELECT user_id, max(orderId) AS value FROM event_order GROUP BY user_id", tables) == []
    assert sql_errors("SELECT o.user_id, max(o.ORDERID) AS value FROM Event_Order o GROUP BY o.user_id", tables) == []
    [error] = sql_errors("SELECT user_id, max(tax) AS value FROM event_order GROUP BY user_id", tables)
    assert (error.code, error.line, error.column) == ("unknown_column", 1, 21)
    # The name of a result is no column of the table.
    [error] = sql_errors("SELECT user_id, sum(tax) AS tax FROM event_order GROUP BY user_id", tables, is_view=True)
    assert error.code == "unknown_column"
    assert (
        sql_errors("SELECT user_id, max(orderId) AS tax FROM event_order GROUP BY user_id ORDER BY tax", tables, is_view=True) == []
    )
    nested = "SELECT user_id, tax AS tax FROM (SELECT user_id, max(orderId) AS tax FROM event_order GROUP BY user_id) t"
    assert sql_errors(nested, tables, is_view=True) == []
    [error] = sql_errors("SELECT user_id, max(tax) AS value FROM event_sale GROUP BY user_id", tables)
    assert error.code == "unknown_table"
    assert error.cure.endswith("event_order")


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("SELECT user_id, 1 AS value FROM Events e JOIN event_order USING (user_id)", {"events", "event_order"}),
        ("WITH days AS (SELECT user_id FROM profiles) SELECT user_id, 1 AS value FROM days", {"profiles"}),
        ("SELECT user_id, 1 AS value FROM events WHERE user_id IN (SELECT user_id FROM event_order)", {"events", "event_order"}),
        ("DROP TABLE events", set()),
        ("SELECT 'a", set()),
    ],
)
def test_the_tables_of_a_statement(sql: str, tables: set[str]) -> None:
    assert tables_read(sql) == tables
