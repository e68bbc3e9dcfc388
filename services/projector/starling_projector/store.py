"""Adapter: writes rows, tallies and progress to Cassandra. Every write has an explicit timestamp and is idempotent."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from starling_common.cassandra.database import Database
from starling_common.telemetry.logs import log
from starling_projector.projection.destinations import TABLES, Destination
from starling_projector.projection.incarnations import next_incarnation, ordinal
from starling_projector.projection.progress import Progress
from starling_projector.projection.rows import Row
from starling_projector.projection.steps import ArmKey, DayKey, StepKey, StepTally
from starling_projector.projection.tallies import Tally, TallyKey
from starling_projector.projection.writes import by_partition, newest, phases


def _insert(table: str, columns: str) -> str:
    places = ", ".join("?" for _ in columns.split(","))
    return f"INSERT INTO {{ks}}.{table} ({columns}) VALUES ({places}) USING TIMESTAMP ?"  # noqa: S608 - constants of this module


_USER: Final = "workspace, source_partition, bucket, user_id"
_STATEMENTS: Final[Mapping[Destination, str]] = {
    Destination.DEFINITION_VERSION: _insert(
        "definition_versions", "workspace, kind, key, version, recorded_at_micros, action, document, actor"
    ),
    Destination.MEMBER: _insert("segment_members", "workspace, segment_key, bucket, user_id, entered_at_ms, sequence"),
    Destination.MEMBER_GONE: (
        "DELETE FROM {ks}.segment_members USING TIMESTAMP ? WHERE workspace = ? AND segment_key = ? AND bucket = ? AND user_id = ?"
    ),
    Destination.USER_MEMBERSHIP: _insert("user_memberships", f"{_USER}, segment_key, change"),
    Destination.USER_PROFILE: _insert("user_profiles", f"{_USER}, profile"),
    Destination.USER_EVENT: _insert("user_history", f"{_USER}, event_time_ms, event_id, event") + " AND TTL {seconds}",
    Destination.AUDIT: _insert(
        "audit_log",
        "workspace, period, recorded_at_micros, resource, key, correlation_id, "
        "actor, actor_name, role, method, path, revision_before, revision_after",
    ),
    Destination.DEFINITION_CREATED: _insert("definitions", "workspace, kind, key, created_at_micros"),
    Destination.DEFINITION: _insert("definitions", "workspace, kind, key, version, status, document, actor, recorded_at_micros"),
}
_READ_COUNT: Final = (
    "SELECT entered, exited, counted_offset FROM {ks}.segment_counts "
    "WHERE workspace = ? AND segment_key = ? AND source_partition = ?"
)
_READ_DAY: Final = (
    "SELECT entered, exited, counted_offset FROM {ks}.segment_days "
    "WHERE workspace = ? AND segment_key = ? AND source_partition = ? AND day = ?"
)
_WRITE_COUNT: Final = _insert("segment_counts", "workspace, segment_key, source_partition, entered, exited, counted_offset")
_WRITE_DAY: Final = _insert("segment_days", "workspace, segment_key, source_partition, day, entered, exited, counted_offset")
_DAY_KEY: Final = "workspace, campaign, day, version, variant, source_partition"
_ARM_KEY: Final = "workspace, campaign, variant, held_out, source_partition"
_READ_CAMPAIGN_DAY: Final = (
    "SELECT counts, value, counted_offset FROM {ks}.campaign_days "
    "WHERE workspace = ? AND campaign = ? AND day = ? AND version = ? AND variant = ? AND source_partition = ?"
)
_READ_CAMPAIGN_ARM: Final = (
    "SELECT counts, value, counted_offset FROM {ks}.campaign_arms "
    "WHERE workspace = ? AND campaign = ? AND variant = ? AND held_out = ? AND source_partition = ?"
)
_WRITE_CAMPAIGN_DAY: Final = _insert("campaign_days", f"{_DAY_KEY}, counts, value, counted_offset")
_WRITE_CAMPAIGN_ARM: Final = _insert("campaign_arms", f"{_ARM_KEY}, counts, value, counted_offset")
_WRITE_PROGRESS: Final = _insert("segmenter_progress", "id, source_partition, stream_time_ms, definitions, recorded_at_micros")
_NEWEST_TOPIC: Final = "SELECT incarnation, topic_id FROM {ks}.projected_topics WHERE topic = ? LIMIT 1"
_NEW_TOPIC: Final = "INSERT INTO {ks}.projected_topics (topic, incarnation, topic_id) VALUES (?, ?, ?) IF NOT EXISTS"

_OTHER_STATEMENTS: Final = (
    *(_READ_CAMPAIGN_DAY, _READ_CAMPAIGN_ARM, _WRITE_CAMPAIGN_DAY, _WRITE_CAMPAIGN_ARM),
    *(_READ_COUNT, _READ_DAY, _WRITE_COUNT, _WRITE_DAY, _WRITE_PROGRESS, _NEWEST_TOPIC, _NEW_TOPIC),
)
_VALID_WRITE: Final = (_STATEMENTS[Destination.MEMBER_GONE], (1, "(check)", "(check)", 0, "(check)"))
"""A write that a database with the tables accepts. It deletes a row that nothing else writes, so it has no effect."""


class Store:
    """The tables of the projector. Every method may raise DatabaseUnavailable and can then be repeated."""

    def __init__(self, database: Database, history_days: int) -> None:
        """`history_days`: the lifetime of the events of users."""
        self._database = database
        event = _STATEMENTS[Destination.USER_EVENT].replace("{seconds}", str(history_days * 86_400))
        self._statements = {**_STATEMENTS, Destination.USER_EVENT: event}

    def incarnations(self, topic_ids: Mapping[str, str]) -> dict[str, int]:
        """Return the incarnation of each topic with the broker's present id; a new id is stored as the next incarnation."""
        return {topic: self._incarnation(topic, topic_id) for topic, topic_id in topic_ids.items()}

    def _incarnation(self, topic: str, topic_id: str) -> int:
        while True:
            found = self._database.read_serially(_NEWEST_TOPIC, (topic,))
            newest = (found[0]["incarnation"], found[0]["topic_id"]) if found else None
            incarnation = next_incarnation(newest, topic_id)
            if newest is not None and newest[0] == incarnation:
                return incarnation
            # Another projector may store the same incarnation at the same time; the first one stays, and is read again.
            if self._database.write_if(_NEW_TOPIC, (topic, incarnation, topic_id)) and newest is not None:
                log(__name__).warning("topic_created_again", topic=topic, incarnation=incarnation, topic_id=topic_id)

    def check(self) -> None:
        """Check that the database has the tables and accepts writes. Raises: StatementRefused with what is missing."""
        self._database.check((*self._statements.values(), *_OTHER_STATEMENTS))
        self._database.write(*_VALID_WRITE)

    def write_rows(self, rows: Sequence[Row]) -> Counter[str]:
        """Write the newest of the rows with each key, in the order of `Destination`. Return the number of rows by table."""
        written = newest(rows)
        for phase in phases(written):
            self._database.write_batches(by_partition(phase, self._statements))
        return Counter([TABLES[row.destination] for row in written])

    def tallies(self, keys: Sequence[TallyKey]) -> dict[TallyKey, Tally]:
        """Return the stored tallies. A missing one is a tally of zeros."""
        totals, days = _split(keys)
        found = self._database.read_each(_READ_COUNT, [key[:3] for key in totals])
        found += self._database.read_each(_READ_DAY, days)
        return {key: Tally(**rows[0]) if rows else Tally() for key, rows in zip([*totals, *days], found, strict=True)}

    def write_tallies(self, tallies: Mapping[TallyKey, Tally]) -> None:
        """Write the tallies. The higher offset wins, so the write of a stale projector has no effect."""
        totals, days = _split(tallies)
        self._database.write_each(_WRITE_COUNT, [(*key[:3], *_stamped(tallies[key])) for key in totals])
        self._database.write_each(_WRITE_DAY, [(*key, *_stamped(tallies[key])) for key in days])

    def step_tallies(self, keys: Sequence[StepKey]) -> dict[StepKey, StepTally]:
        """Return the stored tallies of messages' steps. A missing one is empty."""
        days, arms = _days_and_arms(keys)
        found = self._database.read_each(_READ_CAMPAIGN_DAY, days)
        found += self._database.read_each(_READ_CAMPAIGN_ARM, arms)
        every: list[StepKey] = [*days, *arms]
        return {key: StepTally(**rows[0]) if rows else StepTally() for key, rows in zip(every, found, strict=True)}

    def write_step_tallies(self, tallies: Mapping[StepKey, StepTally]) -> None:
        """Write the tallies of messages' steps, as `write_tallies`. The arms are last: the lift never exceeds the funnel."""
        days, arms = _days_and_arms(tallies)
        for statement, keys in ((_WRITE_CAMPAIGN_DAY, days), (_WRITE_CAMPAIGN_ARM, arms)):
            each = [(key, tallies[key]) for key in keys]
            self._database.write_each(
                statement, [(*key, dict(one.counts), one.value, one.counted_offset, one.counted_offset + 1) for key, one in each]
            )

    def write_progress(self, progress: Iterable[Progress]) -> None:
        """Write the progress of segmenter partitions, which makes it visible to readers."""
        rows = [
            (
                0,
                one.partition,
                one.stream_time_ms,
                dict(one.definitions),
                one.recorded_at_micros,
                ordinal(one.incarnation, one.offset + 1),
            )
            for one in progress
        ]
        self._database.write_each(_WRITE_PROGRESS, rows)


def _split(keys: Iterable[TallyKey]) -> tuple[list[TallyKey], list[TallyKey]]:
    every = list(keys)
    return [key for key in every if key.day is None], [key for key in every if key.day is not None]


def _days_and_arms(keys: Iterable[StepKey]) -> tuple[list[DayKey], list[ArmKey]]:
    every = list(keys)
    return [key for key in every if isinstance(key, DayKey)], [key for key in every if isinstance(key, ArmKey)]


def _stamped(tally: Tally) -> tuple[int, ...]:
    return (*tally, tally.counted_offset + 1)
