"""Pure core: the examples of the operations whose results Spark computes: traits, views, reports, imports and backfills."""

from typing import Final

from starling_api.http.openapi.examples.example import INSTANT, SERVER, Document, Example, definition_examples, page, without_key

_TRAIT_BODY: Final[Document] = {"key": "ltv", "event": "Order Completed", "measure": {"sum": "revenue"}, "within": "365d"}
_TRAIT: Final[Document] = {**_TRAIT_BODY, "name": "ltv", **SERVER}
_SQL_TRAIT: Final[Document] = {
    "key": "margin-365", "name": "margin-365",
    "sql": "SELECT user_id, sum(CAST(get_json_object(properties, '$.margin') AS DOUBLE)) AS value FROM events "
    "WHERE event_time > :as_of - INTERVAL 365 DAYS GROUP BY user_id",
    "schedule": "15 * * * *", "timezone": "UTC", **SERVER, "status": "waiting", "next_run_at": "2026-03-01T10:15:00.000Z",
    "last_run": {
        "as_of": None, "ended_at": None, "users": None, "published": None, "scanned_bytes": None, "message": None,
        "checked_at": None, "checks": None,
    },
}  # fmt: skip
_EVENT_TYPE_BODY: Final[Document] = {
    "key": "order", "event": "Order Completed", "properties": [
        {"name": "order_id", "type": "string"}, {"name": "revenue", "type": "number", "description": "In euros"},
        {"name": "coupons", "type": "string[]"},
    ],
}  # fmt: skip
_EVENT_TYPE: Final[Document] = {**_EVENT_TYPE_BODY, "description": "", **SERVER}
_VIEW_BODY: Final[Document] = {
    "key": "events_by_name", "schedule": "15 * * * *",
    "sql": "SELECT name, count(*) AS events FROM events GROUP BY name",
    "checks": [{"unique": ["name"]}],
}  # fmt: skip
_VIEW: Final[Document] = {
    **_VIEW_BODY, "name": "events_by_name", "description": "", "timezone": "UTC", **SERVER,
    "next_run_at": "2026-03-01T10:15:00.000Z",
    "last_run": {
        "as_of": INSTANT, "ended_at": INSTANT, "rows": 3, "days": None, "late_rows": None, "scanned_bytes": 1200, "message": None,
        "checked_at": INSTANT,
        "checks": [
            {
                "check": "unique name", "severity": "error", "passed": True, "observed": "0", "violations": 0, "message": None,
            },
        ],
    },
}  # fmt: skip
_IMPORT_BODY: Final[Document] = {
    "key": "orders-2025", "uri": "s3://shop-exports/orders", "format": "csv", "kind": "events", "user_column": "customer",
    "event": "Order Completed", "time_column": "at", "columns": {"total": "properties.revenue"},
}  # fmt: skip
_IMPORT: Final[Document] = {**_IMPORT_BODY, "state": "waiting", "message": None, "created_at": INSTANT, "changed_at": None}
_IMPORT_JDBC: Final[Document] = {
    "key": "crm-customers", "uri": "jdbc:postgresql://db/crm", "format": "jdbc", "kind": "traits",
    "user_column": "id", "id_column": "id", "jdbc": {"user": "reader", "password": "***", "table": "customers"},
    "schedule": "15 * * * *", "timezone": "UTC", "next_run_at": INSTANT,
    "state": "waiting", "message": None, "created_at": INSTANT, "changed_at": None,
}  # fmt: skip
_IMPORT_PROGRESS: Final[Document] = {
    **_IMPORT, "state": "running", "changed_at": INSTANT, "rows_done": 1000, "accepted": 999, "rejected": 1,
    "files": [
        {"file": "2025.csv", "rows_done": 1000, "accepted": 999, "rejected": 1, "complete": False, "message": None},
    ],
}  # fmt: skip
_RUN: Final[Document] = {
    "run": "2026-03-01-1", "segments": {"repeat-buyers": 1}, "asked": "running", "state": "running", "percent": 40.0,
    "records_done": 400_000, "records_total": 1_000_000, "records_refused": 0, "started_at": INSTANT, "estimated_end": INSTANT,
    "message": None,
}  # fmt: skip

EXAMPLES: Final[dict[str, Example]] = {
    **definition_examples("computed_trait", "computed_traits", (_TRAIT_BODY, without_key(_TRAIT_BODY)), _TRAIT),
    "run_computed_trait": Example(None, _SQL_TRAIT),
    **definition_examples("event_type", "event_types", (_EVENT_TYPE_BODY, without_key(_EVENT_TYPE_BODY)), _EVENT_TYPE),
    **definition_examples("view", "views", (_VIEW_BODY, without_key(_VIEW_BODY)), _VIEW),
    "run_view": Example(None, _VIEW),
    "get_view": Example(
        None,
        {**_VIEW, "used_by": None, "as_of": INSTANT},
        {
            "materialised": Example(
                None,
                page(
                    {
                        "window_start": "2026-03-01T00:00:00.000Z", "window_end": "2026-03-02T00:00:00.000Z", "region": "Berlin",
                        "product_id": "p-1", "quantity": 3,
                    },
                    view="sales_by_product_region", version=1,
                ),
            )
        },
    ),
    "get_audience_report": Example(
        None,
        page(
            {"segment": "repeat-buyers", "day": "2026-03-01", "size": 2, "entries": 3, "exits": 1},
            report="audience", show="days", timezone="UTC", records_missing=0, records_unreadable=0,
        ),
    ),
    "create_import": Example(_IMPORT_BODY, {**_IMPORT, "rows_done": 0, "accepted": 0, "rejected": 0, "files": []}),
    "repeat_import": Example(
        {}, {**_IMPORT_JDBC, "rows_done": 0, "accepted": 0, "rejected": 0, "files": [], "changed_at": INSTANT}
    ),
    "schedule_import": Example(
        {"schedule": "15 * * * *", "timezone": "UTC"},
        {**_IMPORT_JDBC, "rows_done": 0, "accepted": 0, "rejected": 0, "files": []},
    ),
    "list_imports": Example(None, page(_IMPORT)),
    "get_import": Example(None, _IMPORT_PROGRESS),
    "cancel_import": Example(None, {**_IMPORT_PROGRESS, "state": "cancelled"}),
    "list_import_rejects": Example(
        None,
        page(
            {
                "file": "2025.csv", "row": 17, "column": "at", "code": "bad_value", "reason": "'yesterday' is no time",
                "cure": "write it in ISO 8601, such as 2024-02-29T12:00:00Z",
            },
        ),
    ),
    "list_backfills": Example(None, {"items": [_RUN]}),
    "control_backfill": Example(None, {**_RUN, "asked": "paused"}),
}  # fmt: skip
