"""Pure core: the messages and the consent of a person as the API shows them."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from starling_api.http.pagination import PageOf, cut
from starling_api.messages.people import KnownPerson
from starling_common.time.instants import format_instant
from starling_messages.person.unit import delivery_id
from starling_messages.state import Decided, Pending, PersonState

Document = dict[str, Any]
PENDING: Final = "pending"
_LIST: Final = "messages"


def messages_page(workspace: str, user_id: str, known: KnownPerson | None, page: PageOf) -> Document:
    """Return one page of the messages of a person, the latest due first. Raises: BadRequest (a bad cursor)."""
    position = page.after(_LIST, (0, ""))
    items = [] if known is None else sorted(_messages(workspace, user_id, known.state), key=_place)
    later = [item for item in items if page.cursor is None or _place(item) > position]
    rows, cursor = cut(later[: page.limit + 1], page.limit, _LIST, _place)
    shown = [{name: value for name, value in row.items() if name != "due_ms"} for row in rows]
    return {"items": shown, "next_cursor": cursor, "as_of": as_of(known)}


def as_of(known: KnownPerson | None) -> str | None:
    """Return the stream time of the messenger that an answer reflects; None before the first event."""
    return None if known is None or known.as_of_ms < 0 else format_instant(known.as_of_ms)


def _place(item: Mapping[str, Any]) -> tuple[int, str]:
    return -item["due_ms"], item["delivery_id"]


def _messages(workspace: str, user_id: str, state: PersonState) -> Iterator[Document]:
    for one in state.pending:
        identifier = delivery_id(workspace, one.campaign, user_id, one.instance, "")
        yield {"delivery_id": identifier, **_shown(one), "version": None, "variant": None, "decided_at": None, "status": PENDING}
    for message in state.decided:
        yield {
            "delivery_id": message.delivery_ids[0],
            **_shown(message),
            "version": message.version,
            "variant": message.variant,
            "decided_at": format_instant(message.decided_at),
            "status": message.status,
            "reason": message.reason,
            "outcomes": [
                {"outcome": one.outcome, "at": format_instant(one.at), "reason": one.reason, "value": one.value}
                for one in message.outcomes
            ],
        }


def _shown(one: Pending | Decided) -> Document:
    due_at = format_instant(one.due_at)
    return {
        "campaign": one.campaign, "instance": one.instance, "due_at": due_at, "due_ms": one.due_at, "reason": None, "outcomes": [],
    }  # fmt: skip


def consent_items(known: KnownPerson | None) -> list[Document]:
    """Return the explicit consent of a person, then what the traits state beside it."""
    if known is None:
        return []
    explicit = [
        {
            "channel": one.channel,
            "purpose": one.purpose,
            "granted": one.granted,
            "source": one.source,
            "at": format_instant(one.at),
        }
        for one in sorted(known.state.consent, key=lambda one: (one.channel, one.purpose or ""))
    ]
    explicitly = {(one["channel"], one["purpose"]) for one in explicit}
    return [*explicit, *(one for one in _of_traits(known.state) if (one["channel"], one["purpose"]) not in explicitly)]


def _of_traits(state: PersonState) -> Iterator[Document]:
    channels = msgspec.json.decode(state.traits).get("consent")
    for channel, value in sorted(channels.items()) if isinstance(channels, Mapping) else ():
        purposes: Mapping[str | None, Any] = value if isinstance(value, Mapping) else {None: value}
        for purpose, granted in purposes.items():
            if isinstance(granted, bool):
                yield {"channel": channel, "purpose": purpose, "granted": granted, "source": "trait", "at": None}
