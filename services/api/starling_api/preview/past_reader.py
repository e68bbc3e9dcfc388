"""Adapter: the events of users from the read model in Cassandra, as input of segments. Raises DatabaseUnavailable."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from starling_api.ports import PastEvent, UserPast
from starling_common.cassandra.database import Database, Row
from starling_common.cassandra.read_models import MESSAGE_EVENT, user_partition
from starling_common.records.message_events import EVENT_NAMES, reported_at

MOST_EVENTS: Final = 1_000
"""Maximum events of one user; it bounds the latency of a preview."""

# Without the details, which are most of the bytes.
_BARE: Final = "event_time_ms, event_id, event.kind AS kind, event.name AS name, event.received_at_micros AS received_at_micros"
_PAST: Final = (
    "SELECT {columns} FROM {{ks}}.user_history WHERE workspace = ? AND source_partition = ? AND bucket = ? AND user_id = ? "
    "AND event_time_ms > ? LIMIT ?"  # the newest first
)
_OUTCOMES: Final = frozenset(EVENT_NAMES.values())
_NOTHING: Final[dict[str, Any]] = {}
_details = msgspec.json.Decoder(dict[str, dict[str, Any]])


class CassandraPasts:
    """Reads the events of users from Cassandra."""

    def __init__(self, database: Database, partitions: int) -> None:
        """`partitions`: number of partitions of the topics keyed by profile."""
        self._database = database
        self._partitions = partitions

    def pasts(self, workspace: str, users: Sequence[str], since_ms: int, *, inside: bool) -> Sequence[UserPast]:
        """Return the newest `MOST_EVENTS` events of each user, by parallel queries."""
        statement = _PAST.format(columns=_BARE + ", event.details AS details" * inside)
        since = max(since_ms, -(2**62))
        keys = [(*user_partition(workspace, user, self._partitions), user) for user in users]
        found = self._database.read_each(statement, [(*key, since, MOST_EVENTS) for key in keys])
        return [UserPast(_in_order(rows), len(rows) == MOST_EVENTS) for rows in found]


def _in_order(rows: Sequence[Row]) -> list[PastEvent]:
    events = [(_arrival(row), row["event_id"], row) for row in rows if row["kind"] != MESSAGE_EVENT or row["name"] in _OUTCOMES]
    events.sort(key=lambda event: event[:2])
    found = [_event(row, arrived_at) for arrived_at, _, row in events]
    return [event for event in found if event is not None]


def _arrival(row: Row) -> int:
    if row["kind"] != MESSAGE_EVENT:
        return int(row["received_at_micros"])
    return reported_at(row["received_at_micros"], row["event_time_ms"])


def _event(row: Row, arrived_at: int) -> PastEvent | None:
    """Return the event; None if its properties or its context are no object: the segmenter refuses such an event."""
    try:
        details = _details.decode(row["details"]) if "details" in row else _NOTHING
    except msgspec.DecodeError:
        return None
    properties, context = details.get("properties", _NOTHING), details.get("context", _NOTHING)
    return PastEvent(row["name"], row["event_time_ms"], properties, context, arrived_at, row["kind"] == MESSAGE_EVENT)
