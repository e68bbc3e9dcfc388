"""Pure core: the payloads of notifications, within the bounds of the services that take them."""

import json
from collections.abc import Mapping
from typing import Any, Final

from starling_delivery.channel import Message

MOST_WEB_BYTES: Final = 3_993
"""The longest payload that every push service takes once it is encrypted (RFC 8291, section 4)."""
MOST_MOBILE_BYTES: Final = 4_096
"""The longest payload that FCM and APNs take."""
_DEFAULT_SECONDS: Final = 86_400
"""How long a service keeps a message that never expires, such as a replayed one of an older version."""


class PayloadRefused(Exception):
    """The notification is larger than the service allows."""


def remaining_seconds(message: Message, now_ms: int) -> int:
    """Return for how long a service may keep the message: up to its expiry, whole seconds, rounded down."""
    return _DEFAULT_SECONDS if message.expires_at is None else max(0, (message.expires_at - now_ms) // 1000)


def web_payload(message: Message) -> bytes:
    """Return what the service worker of the site receives: `title`, `body`, `delivery_id`, and `url` if the campaign has one.

    Raises: PayloadRefused.
    """
    return _encoded(dict(message.content) | {"delivery_id": message.delivery_id}, MOST_WEB_BYTES)


def fcm_payload(message: Message, now_ms: int) -> bytes:
    """Return the body of a request to FCM HTTP v1. `url` and `delivery_id` are data of the app. Raises: PayloadRefused."""
    seconds = remaining_seconds(message, now_ms)
    content = {"notification": _texts(message), "data": _data(message)}
    _encoded(content, MOST_MOBILE_BYTES)
    keep = {
        "android": {"ttl": f"{seconds}s"},
        "apns": {"headers": {"apns-expiration": str(now_ms // 1000 + seconds)}},
        "webpush": {"headers": {"TTL": str(seconds)}},
    }
    return _json({"message": {"token": message.address} | content | keep})


def apns_payload(message: Message) -> bytes:
    """Return the body of a request to APNs. `url` and `delivery_id` are data of the app. Raises: PayloadRefused."""
    return _encoded({"aps": {"alert": _texts(message)}} | _data(message), MOST_MOBILE_BYTES)


def _texts(message: Message) -> dict[str, str]:
    return {name: message.content[name] for name in ("title", "body") if name in message.content}


def _data(message: Message) -> dict[str, str]:
    url = message.content.get("url")
    return {"delivery_id": message.delivery_id} | ({} if url is None else {"url": url})


def _encoded(content: Mapping[str, Any], most_bytes: int) -> bytes:
    encoded = _json(content)
    if len(encoded) > most_bytes:
        raise PayloadRefused(f"the notification has {len(encoded)} bytes as JSON: at most {most_bytes}")
    return encoded


def _json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
