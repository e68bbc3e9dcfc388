"""Requests as published clients send them, and items in Protocol Buffers: the seeds of mutation."""

import json
from functools import cache
from typing import Any, Final

from starling_common.wire import Batch, Item
from tests.conftest import ROOT

_RECORDED: Final = ROOT / "tests" / "integration" / "ingest" / "browser_clients.json"
_CONTEXT: Final = {
    "library": {"name": "@segment/analytics-node", "version": "3.1.0"},
    "app": {"name": "shop", "version": "2.1.0"},
    "device": {"id": "d-1", "type": "ios"},
    "ip": "203.0.113.7",
    "locale": "de-DE",
    "timezone": "Europe/Berlin",
    "page": {"url": "https://shop.example/cart", "path": "/cart", "referrer": ""},
    "userAgent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36",
}
_TIMES: Final = {"timestamp": "2026-11-20T10:00:00.000Z", "originalTimestamp": "2026-11-20T10:00:00.000Z"}
_PRODUCTS: Final = [{"product_id": "p-1", "price": 19.5, "quantity": 2}, {"product_id": "p-2", "price": 5}]
_ITEMS: Final[tuple[dict[str, Any], ...]] = (
    {"type": "track", "event": "Order Completed", "properties": {"revenue": 44.0, "currency": "EUR", "products": _PRODUCTS}},
    {"type": "identify", "traits": {"email": "ada@example.com", "plan": "pro", "age": 36, "tags": ["a", "b"]}},
    {"type": "page", "name": "Cart", "category": "Shop", "properties": {"url": "https://shop.example/cart"}},
    {"type": "screen", "name": "Home", "properties": {"tab": 2}},
    {"type": "group", "groupId": "g-1", "traits": {"name": "Acme", "employees": 300}},
    {"type": "alias", "previousId": "anon-1"},
)


@cache
def items() -> list[dict[str, Any]]:
    """Return items of every kind, with the fields that a server library and a browser library send."""
    server = [{"userId": "fz-1", "messageId": "node-1", "context": _CONTEXT, "integrations": {}, **_TIMES, **one} for one in _ITEMS]
    browser = [{"anonymousId": "fz-anon-1", "messageId": "ajs-1", "sentAt": "2026-11-20T10:00:01Z", **one} for one in _ITEMS]
    return [*server, *browser, *(item for batch in recorded() for item in batch.get("batch", [batch]) if isinstance(item, dict))]


@cache
def recorded() -> list[dict[str, Any]]:
    """Return the bodies of the recorded requests of browser clients."""
    requests = [request for session in json.loads(_RECORDED.read_text()).values() for request in session]
    bodies = [request["body"] for request in requests if request["method"] == "POST" and request["body"]]
    return [body for body in (json.loads(text) if isinstance(text, str) else text for text in bodies) if isinstance(body, dict)]


def batch_of(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a batch as a server library sends it."""
    return {"batch": found, "sentAt": "2026-11-20T10:00:02.000Z", "context": {"library": _CONTEXT["library"]}, "integrations": {}}


def item_message(found: dict[str, Any]) -> Item:
    """Return the item in Protocol Buffers; values that have no such form are left out."""
    made = Item()
    for name, field in (("type", "type"), ("messageId", "message_id"), ("userId", "user_id"), ("anonymousId", "anonymous_id"),
                        ("event", "event"), ("name", "name"), ("groupId", "group_id"), ("previousId", "previous_id")):  # fmt: skip
        if isinstance(found.get(name), str):
            setattr(made, field, found[name].encode(errors="replace").decode())
    for name in ("properties", "traits", "context"):
        if isinstance(found.get(name), dict):
            getattr(made, name).update(_plain(found[name]))
    return made


def batch_message(found: list[dict[str, Any]]) -> Batch:
    """Return a batch in Protocol Buffers."""
    made = Batch()
    made.batch.extend(item_message(one) for one in found)
    return made


def _plain(document: Any) -> Any:
    """Return the document with numbers as doubles and texts of valid Unicode."""
    if isinstance(document, dict):
        return {str(name).encode(errors="replace").decode(): _plain(value) for name, value in document.items()}
    if isinstance(document, list):
        return [_plain(value) for value in document]
    if isinstance(document, str):
        return document.encode(errors="replace").decode()
    if isinstance(document, int) and not isinstance(document, bool):
        return float(document) if abs(document) < 1e300 else 1e300
    return document
