"""Pure core: the output records of the normalizer, as mappings by field name."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from starling_common.kafka.topics import BEHAVIOUR, PROFILE
from starling_common.outcome import Refused
from starling_common.values import deterministic_id
from starling_items.item import Alias, Group, Item, Json, Track
from starling_items.profile import Profile
from starling_items.work import Work

Fields: TypeAlias = dict[str, Any]

PAGE_VIEWED: Final = "Page Viewed"
SCREEN_VIEWED: Final = "Screen Viewed"


class Origin(NamedTuple):
    """The position of a source record."""

    topic: str
    partition: int
    offset: int


def behaviour_event(work: Work) -> tuple[str, Fields]:
    """Return the topic and the `BehaviourEvent` of a track, page or screen call, with the profile after the call."""
    item, received = work.item, work.received
    return BEHAVIOUR, {
        **_common(work),
        "kind": received["kind"],
        "name": _event_name(item, received["kind"]),
        "raw_timestamp": item.own_timestamp(),
        "raw_sent_at": item.sent_at or received["sent_at"],
        "properties": json_text(work.properties),
        "products": work.products,
    }


def profile_changed(work: Work) -> tuple[str, Fields]:
    """Return the topic and the `ProfileChanged` of an identify, group or alias call."""
    item = work.item
    change, previous_id, group_traits = "TRAITS", None, None
    if isinstance(item, Group):
        change, group_traits = "GROUP", item.traits
    elif isinstance(item, Alias):
        change, previous_id = "LINKED", str(item.previous_id)
    return PROFILE, {
        **_common(work),
        "change": change,
        "changed": work.changed,
        "group_id": work.profile.group_id,
        "group_traits": json_text(group_traits),
        "previous_id": previous_id,
    }


def computed_changed(computed: Mapping[str, Any], profile: Profile, changed: list[str]) -> Fields:
    """Return the `ProfileChanged` of an `AggregateComputed` that changed the value of a computed trait."""
    workspace, user_id = computed["workspace"], computed["user_id"]
    return {
        "received_at": computed["received_at"],
        "workspace": workspace,
        "user_id": user_id,
        "anonymous_ids": profile.anonymous_ids,
        "event_id": deterministic_id(workspace, user_id, computed["event_id"], "computed"),
        "message_id": None,
        "change": "COMPUTED",
        "event_time": computed["as_of"],
        "changed": changed,
        "traits": profile.traits_json,
        "group_id": profile.group_id,
        "group_traits": "{}",
        "previous_id": None,
        "context": "{}",
        "correlation_id": computed["correlation_id"],
        "order": computed["received_at"],
        "previous_order": 0,
    }


def accepted(work: Work, origin: Origin, decided_at_ms: int) -> Fields:
    """Return the `IngestOutcome` of a call that became an event."""
    return {
        **_outcome(work, origin, decided_at_ms),
        "outcome": "ACCEPTED",
        "event_id": work.event["event_id"],
        "event_topic": work.topic,
    }


def duplicate(work: Work, origin: Origin, decided_at_ms: int) -> Fields:
    """Return the `IngestOutcome` of a repeated call."""
    return {**_outcome(work, origin, decided_at_ms), "outcome": "DUPLICATE"}


def refused(work: Work, reason: Refused, origin: Origin, decided_at_ms: int) -> Fields:
    """Return the `IngestOutcome` of an invalid call."""
    return {**_outcome(work, origin, decided_at_ms), "outcome": "REFUSED", "code": reason.code, "message": reason.message}


def json_text(value: Json | None) -> str:
    """Return a JSON object as text; `{}` for None."""
    return msgspec.json.encode(value).decode() if value else "{}"


def _event_name(item: Item, kind: str) -> str:
    if isinstance(item, Track) and item.event is not None:
        return item.event
    return PAGE_VIEWED if kind == "page" else SCREEN_VIEWED


def _common(work: Work) -> Fields:
    received = work.received
    workspace, message_id = received["workspace"], received["message_id"]
    return {
        "received_at": received["received_at"],
        "workspace": workspace,
        "user_id": work.profile_id,
        "anonymous_ids": work.profile.anonymous_ids,
        "event_id": deterministic_id(workspace, work.profile_id, message_id, received["kind"]),
        "message_id": message_id,
        "event_time": work.event_time_ms,
        "context": json_text(work.item.context),
        "traits": work.profile.traits_json,
        "correlation_id": received["correlation_id"],
        "order": received["received_at"],
        "previous_order": 0,
    }


def _outcome(work: Work, origin: Origin, decided_at_ms: int) -> Fields:
    received = work.received
    return {
        "received_at": received["received_at"],
        "workspace": received["workspace"],
        "user_id": received["user_id"] or received["anonymous_id"],
        "message_id": received["message_id"],
        "event_id": None,
        "event_topic": None,
        "code": None,
        "message": None,
        "origin_topic": origin.topic,
        "origin_partition": origin.partition,
        "origin_offset": origin.offset,
        "decided_at": decided_at_ms,
        "correlation_id": received["correlation_id"],
    }
