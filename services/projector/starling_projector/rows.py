"""Pure core: one decoded record -> the rows that it means. No broker, no database, no clock."""

import json
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

import msgspec

from starling_common.definitions import UnknownAction, status_after
from starling_common.message_events import event_name, properties_of
from starling_common.outcome import Done, Refused
from starling_common.read_models import BACKFILL, MESSAGE_EVENT, member_bucket
from starling_common.topics import (
    BEHAVIOUR,
    DELIVERY,
    LIST_DEFINITIONS,
    MEMBERSHIP,
    PROFILE,
    SEGMENT_DEFINITIONS,
    TRAIT_DEFINITIONS,
    WEBHOOK_DEFINITIONS,
)
from starling_common.wire import Record

MAX_IDENTIFIER_BYTES: Final = 16_384
"""Well below what the database takes as a part of a row's key (65,535 bytes for all parts together)."""


class Into(Enum):
    """What a row is written into, in the order of writing: a definition shows only once its version does."""

    DEFINITION_VERSION = "definition_versions"
    MEMBER = "segment_members"
    MEMBER_GONE = "segment_members (deleted)"
    USER_SEGMENT = "user_segments"
    PROFILE = "profiles"
    USER_EVENT = "user_events"
    DEFINITION_CREATED = "definitions (created)"
    DEFINITION = "definitions"


class Row(NamedTuple):
    """One write that may be repeated. The last of `values` is its timestamp: of two writes the higher one stays."""

    into: Into
    values: tuple[Any, ...]


Rows = Done[tuple[Row, ...]] | Refused


def rows_of(topic: str, record: Record, offset: int) -> Rows:
    """The rows of one record. `offset` orders records of one key; membership has its own order, the sequence.

    Refused: `unknown_topic`, `bad_identifier`, `unknown_action`, `bad_json`.
    """
    build = _BUILDERS.get(topic)
    if build is None:
        return Refused("unknown_topic", f"the projector has no read model for {topic}")
    wrong = _bad_identifier(record)
    return Refused("bad_identifier", wrong) if wrong else build(record, offset)


def _bad_identifier(record: Record) -> str | None:
    for name in ("workspace", "user_id", "segment_key", "key"):
        # A report of a message that no segment asked for has none.
        value = record.get(name)
        if value is not None and not 0 < len(value.encode()) <= MAX_IDENTIFIER_BYTES:
            return f"{name} must have 1 to {MAX_IDENTIFIER_BYTES} bytes, not {len(value.encode())}"
    return None


def _definition(record: Record, offset: int) -> Rows:
    if record["kind"] == BACKFILL:
        return Done(())
    try:
        status = status_after(record["action"])
    except UnknownAction as error:
        return Refused("unknown_action", str(error))
    identity = (record["workspace"], record["kind"], record["key"])
    version, document, actor, recorded_at = record["version"], record["document"], record["actor"], record["recorded_at"]
    rows = [
        Row(Into.DEFINITION_VERSION, (*identity, version, recorded_at, record["action"], document, actor, _written(offset))),
        Row(Into.DEFINITION, (*identity, version, status, document, actor, recorded_at, _written(offset))),
    ]
    if record["action"] == "DEFINED":
        rows.append(Row(Into.DEFINITION_CREATED, (*identity, recorded_at, _written(offset))))
    return Done(tuple(rows))


def _membership(record: Record, _offset: int) -> Rows:
    workspace, user, segment = record["workspace"], record["user_id"], record["segment_key"]
    status, sequence, effective_at = record["status"], record["sequence"], record["effective_at"]
    member = (workspace, segment, member_bucket(user), user)
    current = (workspace, user, segment, status, sequence, effective_at, record["segment_version"], sequence)
    first = (
        Row(Into.MEMBER, (*member, effective_at, sequence, sequence))
        if status == "ENTERED"
        else Row(Into.MEMBER_GONE, (sequence, *member))
    )
    return Done((first, Row(Into.USER_SEGMENT, current)))


def _profile(record: Record, offset: int) -> Rows:
    values = (
        record["workspace"],
        record["user_id"],
        record["anonymous_ids"],
        record["traits"],
        record["group_id"],
        record["event_time"],
        record["received_at"],
    )
    return Done((Row(Into.PROFILE, (*values, _written(offset))),))


def _behaviour(record: Record, offset: int) -> Rows:
    details = f'{{"properties":{record["properties"]},"context":{record["context"]}}}'
    try:
        msgspec.json.decode(details)
    except msgspec.DecodeError as error:
        return Refused("bad_json", f"properties or context are no JSON: {error}")
    return _event(record, record["kind"], (record["name"], record["message_id"], details), offset)


def _delivery(record: Record, offset: int) -> Rows:
    details = json.dumps({"properties": properties_of(record), "context": {}}, ensure_ascii=False)
    return _event(record, MESSAGE_EVENT, (event_name(record["outcome"]), None, details), offset)


def _event(record: Record, kind: str, what: tuple[str, str | None, str], offset: int) -> Rows:
    # One event has one id and one time: what is read twice is one row.
    identity = (record["workspace"], record["user_id"], record["event_time"], record["event_id"])
    values = (*identity, kind, *what, record["received_at"], record["correlation_id"], _written(offset))
    return Done((Row(Into.USER_EVENT, values),))


def _written(offset: int) -> int:
    # A profile's records are in one partition, a kind's definitions in a topic of one: there the offset is the order.
    return offset + 1


_BUILDERS: Final[Mapping[str, Callable[[Record, int], Rows]]] = {
    SEGMENT_DEFINITIONS: _definition,
    TRAIT_DEFINITIONS: _definition,
    WEBHOOK_DEFINITIONS: _definition,
    LIST_DEFINITIONS: _definition,
    MEMBERSHIP: _membership,
    PROFILE: _profile,
    BEHAVIOUR: _behaviour,
    DELIVERY: _delivery,
}
