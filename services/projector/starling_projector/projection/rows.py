"""Pure core: converts one decoded record to rows of the read models."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from starling_common.cassandra.read_models import BACKFILL, MESSAGE_EVENT, audit_period, member_bucket, user_bucket
from starling_common.kafka.topics import (
    AUDIT,
    BEHAVIOUR,
    CAMPAIGN_PROGRESS,
    DELIVERY,
    DELIVERY_DEFINITIONS,
    LAKE_DEFINITIONS,
    LIST_DEFINITIONS,
    MEMBERSHIP,
    PROFILE,
    SEGMENT_DEFINITIONS,
    TRAIT_DEFINITIONS,
    WEBHOOK_DEFINITIONS,
)
from starling_common.outcome import Done, Refused
from starling_common.records.definitions import UnknownAction, status_after
from starling_common.records.message_events import event_name, properties_of
from starling_common.time.instants import EARLIEST_MS, LATEST_MS
from starling_common.wire import Record
from starling_projector.projection.destinations import Destination
from starling_projector.projection.incarnations import ordinal

_TIMES: Final = (("event_time", 1), ("effective_at", 1), ("received_at", 1_000), ("recorded_at", 1_000), ("decided_at", 1))
"""The instants of a record, with their units in a millisecond."""
_AUDIT_COLUMNS: Final = ("actor", "actor_name", "role", "method", "path", "revision_before", "revision_after")
_object = msgspec.json.Decoder(dict[str, Any])
_objects = msgspec.json.Decoder(dict[str, dict[str, Any]])

MAX_IDENTIFIER_BYTES: Final = 16_384
"""Maximum bytes of a part of a row's key. The database accepts 65,535 bytes for all parts together."""


class Row(NamedTuple):
    """One idempotent write. `key`: the primary key, partition key first. `written`: its timestamp; the highest one stays."""

    destination: Destination
    key: tuple[Any, ...]
    columns: tuple[Any, ...]
    written: int


Rows = Done[tuple[Row, ...]] | Refused


class Position(NamedTuple):
    """The partition and offset of a record, and the incarnation of its topic."""

    partition: int
    offset: int
    incarnation: int = 0


def rows_of(topic: str, record: Record, position: Position) -> Rows:
    """Return the rows of one record. The offset orders the records of one key; membership is ordered by its sequence.

    Records of a later incarnation of the topic follow all earlier ones.

    Refused: `unknown_topic`, `bad_identifier`, `bad_time`, `unknown_action`, `bad_json`.
    """
    build = _BUILDERS.get(topic)
    if build is None:
        return Refused("unknown_topic", f"the projector has no read model for {topic}")
    wrong = _bad_identifier(record)
    if wrong:
        return Refused("bad_identifier", wrong)
    wrong = _bad_time(record)
    return Refused("bad_time", wrong) if wrong else build(record, position)


def _bad_identifier(record: Record) -> str | None:
    for name in ("workspace", "user_id", "segment_key", "key", "event_id"):
        # The report of a message without a segment has no segment key.
        value = record.get(name)
        if value is not None and not 0 < len(value.encode()) <= MAX_IDENTIFIER_BYTES:
            return f"{name} must have 1 to {MAX_IDENTIFIER_BYTES} bytes, not {len(value.encode())}"
    return None


def _bad_time(record: Record) -> str | None:
    """Return what is wrong with an instant that readers cannot write as a date."""
    for name, per_ms in _TIMES:
        value = record.get(name)
        if value is not None and not EARLIEST_MS <= value // per_ms <= LATEST_MS:
            return f"{name} must be from the year 1 to 9999, not {value}"
    return None


def _definition(record: Record, position: Position) -> Rows:
    if record["kind"] == BACKFILL:
        return Done(())
    try:
        status = status_after(record["action"])
    except UnknownAction as error:
        return Refused("unknown_action", str(error))
    identity = (record["workspace"], record["kind"], record["key"])
    version, document, actor, recorded_at = record["version"], record["document"], record["actor"], record["recorded_at"]
    written, action = _written(position), record["action"]
    rows = [
        Row(Destination.DEFINITION_VERSION, (*identity, version, recorded_at), (action, document, actor), written),
        Row(Destination.DEFINITION, identity, (version, status, document, actor, recorded_at), written),
    ]
    if action == "DEFINED":
        rows.append(Row(Destination.DEFINITION_CREATED, identity, (recorded_at,), written))
    return Done(tuple(rows))


def _membership(record: Record, position: Position) -> Rows:
    workspace, user, segment = record["workspace"], record["user_id"], record["segment_key"]
    status, sequence, effective_at = record["status"], record["sequence"], record["effective_at"]
    member, written = (workspace, segment, member_bucket(user), user), ordinal(position.incarnation, sequence)
    change = (status, sequence, effective_at, record["segment_version"])
    first = (
        Row(Destination.MEMBER, member, (effective_at, sequence), written)
        if status == "ENTERED"
        else Row(Destination.MEMBER_GONE, member, (), written)
    )
    key = (workspace, position.partition, user_bucket(user), user, segment)
    return Done((first, Row(Destination.USER_MEMBERSHIP, key, (change,), written)))


def _profile(record: Record, position: Position) -> Rows:
    try:
        _object.decode(record["traits"])
    except msgspec.DecodeError as error:
        return Refused("bad_json", f"traits are no JSON object: {error}")
    profile = (record["anonymous_ids"], record["traits"], record["group_id"], record["event_time"], record["received_at"])
    return Done((Row(Destination.USER_PROFILE, _user_key(record, position), (profile,), _written(position)),))


def _behaviour(record: Record, position: Position) -> Rows:
    details = f'{{"properties":{record["properties"]},"context":{record["context"]}}}'
    try:
        _objects.decode(details)
    except msgspec.DecodeError as error:
        return Refused("bad_json", f"properties or context are no JSON object: {error}")
    return _event(record, (record["kind"], record["name"], record["message_id"], details), position)


def _delivery(record: Record, position: Position) -> Rows:
    details = json.dumps({"properties": properties_of(record), "context": {}}, ensure_ascii=False)
    return _event(record, (MESSAGE_EVENT, event_name(record["outcome"]), None, details), position)


def _counted_only(record: Record, _position: Position) -> Rows:
    for name in ("campaign", "variant"):
        value = record[name]
        if value is not None and not 0 < len(value.encode()) <= MAX_IDENTIFIER_BYTES:
            return Refused("bad_identifier", f"{name} must have 1 to {MAX_IDENTIFIER_BYTES} bytes, not {len(value.encode())}")
    return Done(())


def _audit(record: Record, position: Position) -> Rows:
    for name in ("resource", "correlation_id"):
        if not 0 < len(record[name].encode()) <= MAX_IDENTIFIER_BYTES:
            return Refused(
                "bad_identifier", f"{name} must have 1 to {MAX_IDENTIFIER_BYTES} bytes, not {len(record[name].encode())}"
            )
    recorded_at = record["recorded_at"]
    # The key contains the time and the request, so a repeated record is the same row.
    change = (recorded_at, record["resource"], record["key"], record["correlation_id"])
    key = (record["workspace"], audit_period(recorded_at), *change)
    columns = tuple(record[name] for name in _AUDIT_COLUMNS)
    return Done((Row(Destination.AUDIT, key, columns, _written(position)),))


def _event(record: Record, what: tuple[str, str, str | None, str], position: Position) -> Rows:
    # The key contains the event's time and id, so a repeated record is the same row.
    key = (*_user_key(record, position), record["event_time"], record["event_id"])
    event = (*what, record["received_at"], record["correlation_id"])
    return Done((Row(Destination.USER_EVENT, key, (event,), _written(position)),))


def _user_key(record: Record, position: Position) -> tuple[Any, ...]:
    user = record["user_id"]
    return record["workspace"], position.partition, user_bucket(user), user


def _written(position: Position) -> int:
    # The records of a profile are in one partition, the definitions of a kind in one single-partition topic, so offsets order them.
    return ordinal(position.incarnation, position.offset + 1)


_BUILDERS: Final[Mapping[str, Callable[[Record, Position], Rows]]] = {
    SEGMENT_DEFINITIONS: _definition,
    TRAIT_DEFINITIONS: _definition,
    WEBHOOK_DEFINITIONS: _definition,
    LIST_DEFINITIONS: _definition,
    DELIVERY_DEFINITIONS: _definition,
    LAKE_DEFINITIONS: _definition,
    MEMBERSHIP: _membership,
    PROFILE: _profile,
    BEHAVIOUR: _behaviour,
    DELIVERY: _delivery,
    CAMPAIGN_PROGRESS: _counted_only,
    AUDIT: _audit,
}
