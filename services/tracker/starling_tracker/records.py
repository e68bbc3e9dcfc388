"""Pure core: the records that requests become."""

from typing import Any, Final

from starling_common.values import deterministic_id, record_key
from starling_messages.effects import MACHINE
from starling_messages.links import Link

OPENED: Final = "OPENED"
CLICKED: Final = "CLICKED"
UNSUBSCRIBED: Final = "UNSUBSCRIBED"

PAGE: Final = "page"
ONE_CLICK: Final = "one_click"
"""Sources of a change of consent: the page, and the button of a mail client (RFC 8058)."""


def outcome(link: Link, name: str, now_micros: int, *, machine: bool = False) -> dict[str, Any]:
    """Return the `DeliveryReported` of a request. A person unsubscribes from a message once; each open and click counts."""
    instant = "" if name == UNSUBSCRIBED else now_micros
    return {
        "received_at": now_micros,
        "workspace": link.workspace,
        "user_id": link.user_id,
        "event_id": deterministic_id(link.delivery_id, name, "tracker", instant),
        "delivery_id": link.delivery_id,
        "channel": link.channel,
        "target_key": link.target_key,
        "outcome": name,
        "attempt": 0,
        "status_code": None,
        "detail": MACHINE if machine else None,
        "segment_key": None,
        "event_time": now_micros // 1000,
        "correlation_id": link.delivery_id,
        "campaign": link.campaign,
    }


def refusal(link: Link, source: str, now_micros: int) -> dict[str, Any]:
    """Return the `ConsentChanged` by which the person refuses the channel and the purpose of a message."""
    return {
        "received_at": now_micros,
        "workspace": link.workspace,
        "user_id": link.user_id,
        "channel": link.channel,
        "purpose": link.purpose,
        "granted": False,
        "source": source,
        "changed_at": now_micros // 1000,
        "correlation_id": link.delivery_id,
    }


def outcome_key(link: Link) -> bytes:
    """Return the key of an outcome."""
    return record_key(link.workspace, link.user_id)


def consent_key(link: Link) -> bytes:
    """Return the key of a change of consent."""
    return b"%b/%b/%b" % (outcome_key(link), link.channel.encode(), (link.purpose or "").encode())
