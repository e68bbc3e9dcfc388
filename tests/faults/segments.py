"""The segments of a fault run: every kind of timer, window and dependence, few enough to be read."""

from typing import Any

BLOBS = 40
"""Large properties; of each, one user's state keeps the last value."""

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
    "hoarders": {
        "any": [
            {"event": "Blob Seen", "measure": {"last": f"blob{number}"}, "op": "starts_with", "value": "00"}
            for number in range(BLOBS)
        ]
    },
    "all-users": {"everyone": True},
}


def document(key: str, where: Any = None) -> dict[str, Any]:
    return {"key": key, "name": key.replace("-", " "), "where": where or WHERES[key]}
