"""Adapter: the read models of members, users and progress in Cassandra. Every method may raise DatabaseUnavailable."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from starling_api.definitions.repository import stored_document
from starling_api.ports import Day, EventRow, MemberRow, Membership, PastMembership, Profile, ReportedProgress, Version
from starling_common.cassandra.database import Database, Row
from starling_common.cassandra.read_models import MEMBER_BUCKETS, user_partition

_PROGRESS: Final = "SELECT * FROM {ks}.segmenter_progress WHERE id = 0"
_VERSIONS: Final = (
    "SELECT * FROM {ks}.definition_versions "
    "WHERE workspace = ? AND kind = ? AND key = ? AND (version, recorded_at_micros) > (?, ?) LIMIT ?"
)
_MEMBERS: Final = (
    "SELECT bucket, user_id, entered_at_ms, sequence FROM {ks}.segment_members "
    "WHERE workspace = ? AND segment_key = ? AND bucket = ? AND user_id > ? LIMIT ?"
)
_COUNTS: Final = "SELECT entered, exited FROM {ks}.segment_counts WHERE workspace = ? AND segment_key = ?"
_DAYS: Final = "SELECT day, entered, exited FROM {ks}.segment_days WHERE workspace = ? AND segment_key = ?"
_USER: Final = "workspace = ? AND source_partition = ? AND bucket = ? AND user_id = ?"
_MEMBERSHIPS: Final = f"SELECT segment_key, change FROM {{ks}}.user_memberships WHERE {_USER}"  # noqa: S608 - constants
_PROFILE: Final = f"SELECT profile FROM {{ks}}.user_profiles WHERE {_USER}"  # noqa: S608 - constants
_EVENTS: Final = (
    f"SELECT event_time_ms, event_id, event FROM {{ks}}.user_history WHERE {_USER} "  # noqa: S608 - constants
    "AND (event_time_ms, event_id) < (?, ?) LIMIT ?"
)


class CassandraAudience:
    """Reads the tables of the projector."""

    def __init__(self, database: Database, partitions: int) -> None:
        """`partitions`: number of partitions of the topics keyed by profile."""
        self._database = database
        self._partitions = partitions

    def progress(self) -> Mapping[int, ReportedProgress]:
        """Return the progress by partition number."""
        rows = self._database.read(_PROGRESS)
        return {row["source_partition"]: ReportedProgress(row["stream_time_ms"], row["definitions"] or {}) for row in rows}

    def versions(self, workspace: str, kind: str, key: str, after: tuple[int, int], most: int) -> Sequence[Version]:
        """Return the changes, the oldest first."""
        rows = self._database.read(_VERSIONS, (workspace, kind, key, *after, most))
        return [
            Version(row["version"], row["action"], row["actor"], row["recorded_at_micros"], stored_document(row["document"]) or {})
            for row in rows
        ]

    def members(self, workspace: str, segment_key: str, after: tuple[int, str], most: int) -> Sequence[MemberRow]:
        """Read bucket by bucket until `most` members are found."""
        first_bucket, user = after
        found: list[MemberRow] = []
        for bucket in range(max(0, first_bucket), MEMBER_BUCKETS):
            start = user if bucket == first_bucket else ""
            rows = self._database.read(_MEMBERS, (workspace, segment_key, bucket, start, most - len(found)))
            found.extend(MemberRow(**row) for row in rows)
            if len(found) >= most:
                break
        return found

    def counts(self, workspace: str, segment_key: str) -> tuple[int, int]:
        """Return entries and exits, summed over the source partitions."""
        rows = self._database.read(_COUNTS, (workspace, segment_key))
        return sum(row["entered"] for row in rows), sum(row["exited"] for row in rows)

    def sizes(self, workspace: str, keys: Sequence[str]) -> Sequence[int]:
        """Return the size of each segment, by parallel queries."""
        found = self._database.read_each(_COUNTS, [(workspace, key) for key in keys])
        return [sum(row["entered"] - row["exited"] for row in rows) for rows in found]

    def days(self, workspace: str, segment_key: str) -> Sequence[Day]:
        """Return the days in order, summed over the source partitions."""
        days: dict[int, Day] = {}
        for row in self._database.read(_DAYS, (workspace, segment_key)):
            before = days.get(row["day"], Day(row["day"], 0, 0))
            days[row["day"]] = Day(row["day"], before.entered + row["entered"], before.exited + row["exited"])
        return [days[day] for day in sorted(days)]

    def memberships(self, workspace: str, users: Sequence[str]) -> Sequence[Sequence[Membership]]:
        """Return the memberships of each user, by parallel queries."""
        found = self._database.read_each(_MEMBERSHIPS, [self._key(workspace, user) for user in users])
        return [
            [
                Membership(key, change.segment_version, change.effective_at_ms, change.sequence)
                for key, change in map(_change, rows)
                if change.status == "ENTERED"
            ]
            for rows in found
        ]

    def past_memberships(self, workspace: str, user_id: str) -> Sequence[PastMembership]:
        """Return the current and the former memberships."""
        rows = self._database.read(_MEMBERSHIPS, self._key(workspace, user_id))
        return [
            PastMembership(key, change.segment_version, change.status, change.effective_at_ms, change.sequence)
            for key, change in map(_change, rows)
        ]

    def profile(self, workspace: str, user_id: str) -> Profile | None:
        """Return the profile; None for an unknown user."""
        rows = self._database.read(_PROFILE, self._key(workspace, user_id))
        if not rows:
            return None
        found = rows[0]["profile"]
        traits = stored_document(found.traits or "{}") or {}
        return Profile(user_id, list(found.anonymous_ids or ()), traits, found.group_id, found.event_time_ms)

    def events(self, workspace: str, user_id: str, before: tuple[int, str], most: int) -> Sequence[EventRow]:
        """Return the events in the table's order, the newest first."""
        rows = self._database.read(_EVENTS, (*self._key(workspace, user_id), *before, most))
        return [_event_row(row) for row in rows]

    def _key(self, workspace: str, user_id: str) -> tuple[object, ...]:
        return (*user_partition(workspace, user_id, self._partitions), user_id)


def _change(row: Row) -> tuple[str, Any]:
    return row["segment_key"], row["change"]


def _event_row(row: Row) -> EventRow:
    event = row["event"]._asdict()
    return EventRow(
        event_time_ms=row["event_time_ms"], event_id=row["event_id"], **event | {"details": msgspec.json.decode(event["details"])}
    )
