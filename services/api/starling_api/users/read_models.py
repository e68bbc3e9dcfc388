"""Adapter: the read models of members, users and progress in Cassandra. Every method may raise DatabaseUnavailable."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from starling_api.definitions.repository import stored_document
from starling_api.ports import Day, EventRow, MemberRow, Membership, PastMembership, Profile, ReportedProgress, Version
from starling_common.cassandra.database import Database
from starling_common.cassandra.read_models import MEMBER_BUCKETS

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
_USER_SEGMENTS: Final = "SELECT * FROM {ks}.user_segments WHERE workspace = ? AND user_id = ?"
_PROFILE: Final = "SELECT * FROM {ks}.profiles WHERE workspace = ? AND user_id = ?"

_EVENTS: Final = (
    "SELECT event_time_ms, event_id, kind, name, message_id, details, received_at_micros, correlation_id FROM {ks}.user_events "
    "WHERE workspace = ? AND user_id = ? AND (event_time_ms, event_id) < (?, ?) LIMIT ?"
)


class CassandraAudience:
    """Reads the tables of the projector."""

    def __init__(self, database: Database) -> None:
        self._database = database

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
        found = self._database.read_each(_USER_SEGMENTS, [(workspace, user) for user in users])
        return [
            [
                Membership(row["segment_key"], row["segment_version"], row["effective_at_ms"], row["sequence"])
                for row in rows
                if row["status"] == "ENTERED"
            ]
            for rows in found
        ]

    def past_memberships(self, workspace: str, user_id: str) -> Sequence[PastMembership]:
        """Return the current and the former memberships."""
        rows = self._database.read(_USER_SEGMENTS, (workspace, user_id))
        return [
            PastMembership(row["segment_key"], row["segment_version"], row["status"], row["effective_at_ms"], row["sequence"])
            for row in rows
        ]

    def profile(self, workspace: str, user_id: str) -> Profile | None:
        """Return the profile; None for an unknown user."""
        rows = self._database.read(_PROFILE, (workspace, user_id))
        if not rows:
            return None
        row = rows[0]
        traits = msgspec.json.decode(row["traits"] or "{}")
        return Profile(row["user_id"], row["anonymous_ids"] or [], traits, row["group_id"], row["event_time_ms"])

    def events(self, workspace: str, user_id: str, before: tuple[int, str], most: int) -> Sequence[EventRow]:
        """Return the events in the table's order, the newest first."""
        rows = self._database.read(_EVENTS, (workspace, user_id, *before, most))
        return [EventRow(**row | {"details": msgspec.json.decode(row["details"])}) for row in rows]
