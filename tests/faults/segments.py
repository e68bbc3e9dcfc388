"""The segments of a fault run: every kind of timer, window and dependence, few enough to be read."""

from typing import Any

WHERES: dict[str, Any] = {
    "odd": {"event": "Toggled", "measure": "count", "op": "mod", "value": [2, 1]},
    "buyers": {"event": "Order Completed", "op": "gte", "value": 3, "within": "10m"},
    "big-spenders": {"event": "Order Completed", "measure": {"sum": "revenue"}, "op": "gte", "value": 150, "within": "30m"},
    "collectors": {"event": "Order Completed", "measure": {"distinct": "sku"}, "op": "gte", "value": 4, "within": "1h"},
    "newcomers": {"first_time": {"event": "Order Completed"}, "within": "15m"},
    "quiet": {"not": {"event": "Page *", "within": "5m"}},
    "pro": {"trait": "plan", "op": "eq", "value": "pro"},
    "active-pro": {"all": [{"segment": "pro"}, {"not": {"segment": "quiet"}}]},
    "loyal": {"event": "Order Completed", "measure": {"sum": "revenue"}, "op": "gt", "value": 2000},
    "hoarders": {"event": "Blob Seen", "measure": {"distinct": "blob"}, "op": "gte", "value": 20},
    "everybody": {"everyone": True},
}


def document(key: str) -> dict[str, Any]:
    return {"key": key, "name": key.replace("-", " "), "where": WHERES[key]}
