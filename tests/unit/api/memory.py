"""Stores in memory that behave: what the core asks of the world, without a world."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from starling_api.audit.audit import Audit, AuditPosition, AuditRow
from starling_api.backfills.backfills import Backfills
from starling_api.credentials.bodies import TOKEN, WRITE_KEY
from starling_api.credentials.commands import CredentialCommands
from starling_api.definitions.commands.commands import Commands
from starling_api.definitions.definition import Author, Change, Definition
from starling_api.definitions.in_force import Definitions
from starling_api.definitions.kinds.kind import Document, Kind
from starling_api.definitions.kinds.kinds import EVENT_TYPES, VIEWS
from starling_api.definitions.quota import Quota
from starling_api.definitions.vault import Vault
from starling_api.feed.changes import FeedStep, Span, Wanted
from starling_api.feed.streams import Streams
from starling_api.http.access.auth import Tokens
from starling_api.http.dependencies import Services
from starling_api.http.errors import MessengerBehind
from starling_api.imports.imports import ImportFileRow, ImportRow, Imports, RejectRow
from starling_api.lists.lists import ListChange, ListRow, Lists, has_list
from starling_api.messages.bodies import RequestedConsent, RequestedSuppressions
from starling_api.messages.people import KnownPerson
from starling_api.outcomes.outcomes import Outcomes
from starling_api.ports import (
    Claim,
    ComputedProgress,
    Day,
    EventRow,
    InForce,
    MemberRow,
    Membership,
    PastMembership,
    Profile,
    ReportedProgress,
    Stored,
    Version,
)
from starling_api.preview.previews import Previews
from starling_api.reports.audience_report import ReportRow, ReportRun, Reports
from starling_api.reports.campaign_report import CountedArm, CountedDay
from starling_api.reports.views import MaterialisedViews, ViewEntry, ViewRow
from starling_api.sql.runs import RunRow, SqlRuns
from starling_api.users.exports import Exports
from starling_api.users.queries import Queries
from starling_common.kafka.clients import BrokerUnavailable
from starling_common.kafka.topics import AUDIT
from starling_common.outcome import Done
from starling_common.records.credentials import Credentials, fold_credentials
from starling_common.security.sealing import Sealer
from starling_common.settings import Clock
from starling_common.time.timezones import Timezones
from starling_common.values import Workspace
from starling_common.wire import Record
from starling_messages.broadcast_progress import Written
from starling_messages.person.unit import SuppressionOf
from starling_messages.state import PersonState
from starling_projector.projection.rows import Position, rows_of
from starling_rules.imports import ImportState
from starling_rules.ledger import Run
from starling_rules.sql.runs import WAITING, ScheduledSql
from tests.unit.api.memory_states import MemoryPasts, MemoryStates

AUTHOR = Author(Workspace("acme"), "marketer-1", "correlation-1")

Identity = tuple[str, str, str]


class MemoryClaims:
    def __init__(self) -> None:
        self.newest_claims: dict[Identity, Claim] = {}

    def newest(self, workspace: str, kind: str, key: str) -> Claim | None:
        return self.newest_claims.get((workspace, kind, key))

    def claim(self, change: Change, after: Change | None) -> bool:
        identity = (change.workspace, change.kind, change.key)
        found = self.newest_claims.get(identity)
        if (found.change.event_id if found else None) != (after.event_id if after else None):
            return False
        self.newest_claims[identity] = Claim(change, published=False)
        return True

    def withdraw(self, change: Change, before: Change | None) -> None:
        identity = (change.workspace, change.kind, change.key)
        found = self.newest_claims.get(identity)
        if found is None or found.published or found.change.event_id != change.event_id:
            return
        if before is None:
            del self.newest_claims[identity]
        else:
            self.newest_claims[identity] = Claim(before, published=True)

    def mark_published(self, change: Change) -> None:
        identity = (change.workspace, change.kind, change.key)
        found = self.newest_claims.get(identity)
        if found is not None and found.change.event_id == change.event_id:
            self.newest_claims[identity] = replace(found, published=True)

    def unpublished(self) -> Sequence[Change]:
        return [claim.change for claim in self.newest_claims.values() if not claim.published]


class MemoryViews:
    """`kept`: (workspace, view, version) -> rows, in any order."""

    def __init__(self) -> None:
        self.entries: dict[str, ViewEntry] = {}
        self.kept: dict[tuple[str, str, int], list[ViewRow]] = {}
        self.times: dict[tuple[str, int], int] = {}

    def entry(self, view: str) -> ViewEntry | None:
        return self.entries.get(view)

    def time_ms(self, view: str, version: int) -> int | None:
        return self.times.get((view, version))

    def windows(self, workspace: str, view: str, version: int, span: tuple[int, int]) -> Sequence[int]:
        starts = {row.window_start_ms for row in self.kept.get((workspace, view, version), [])}
        return sorted(start for start in starts if span[0] <= start < span[1])

    def rows(self, workspace: str, view: str, version: int, window_start_ms: int, after: str, most: int) -> Sequence[ViewRow]:
        rows = [row for row in self.kept[workspace, view, version] if row.window_start_ms == window_start_ms and row.place > after]
        return sorted(rows, key=lambda row: row.place)[:most]


class MemoryImports:
    """`rows`: key -> import, `kept`: key -> files, `rejected`: key -> rejected rows, all of one workspace."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], ImportRow] = {}
        self.kept: dict[str, list[ImportFileRow]] = {}
        self.deletions: dict[str, str | None] = {}
        self.rejected: dict[str, list[RejectRow]] = {}

    def add(self, workspace: str, row: ImportRow) -> bool:
        return self.rows.setdefault((workspace, row.key), row) is row

    def find(self, workspace: str, key: str) -> ImportRow | None:
        return self.rows.get((workspace, key))

    def page(self, workspace: str, after: str, most: int) -> Sequence[ImportRow]:
        return [row for (place, key), row in sorted(self.rows.items()) if place == workspace and key > after][:most]

    def files(self, workspace: str, key: str) -> Sequence[ImportFileRow]:
        return self.kept.get(key, [])

    def rejects(self, workspace: str, key: str, after: tuple[str, int], most: int) -> Sequence[RejectRow]:
        return [row for row in self.rejected.get(key, []) if (row.file, row.row) > after][:most]

    def repeat(self, workspace: str, key: str, request: str, deletions: str | None, now_ms: int) -> bool:
        self.deletions[key] = deletions
        row = self.rows[workspace, key]
        if row.state in {"waiting", "running"}:
            return False
        self.rows[workspace, key] = row._replace(
            state="waiting", request=request, message=None, changed_at_ms=now_ms, due_after_ms=now_ms
        )
        return True

    def every(self) -> Sequence[ImportState]:
        return [
            ImportState(workspace, key, row.state, row.schedule, row.timezone, row.due_after_ms)
            for (workspace, key), row in self.rows.items()
        ]

    def queue(self, one: ImportState, now_ms: int) -> bool:
        row = self.rows[one.workspace, one.key]
        if (row.state, row.due_after_ms) != (one.state, one.due_after_ms):
            return False
        self.rows[one.workspace, one.key] = row._replace(state="waiting", message=None, changed_at_ms=now_ms, due_after_ms=now_ms)
        return True

    def set_schedule(self, workspace: str, key: str, schedule: str | None, timezone: str | None, now_ms: int) -> bool:
        row = self.rows[workspace, key]
        self.rows[workspace, key] = row._replace(schedule=schedule, timezone=timezone, due_after_ms=now_ms)
        return True

    def replace(self, workspace: str, key: str, former: str, request: str) -> bool:
        row = self.rows[workspace, key]
        if row.request != former:
            return False
        self.rows[workspace, key] = row._replace(request=request)
        return True

    def cancel(self, workspace: str, key: str, states: Sequence[str], now_ms: int) -> bool:
        row = self.rows[workspace, key]
        if row.state not in states:
            return False
        self.rows[workspace, key] = row._replace(state="cancelled", changed_at_ms=now_ms)
        return True


class MemoryReports:
    """`runs`: by workspace; `kept`: (workspace, run, part) -> rows, in any order."""

    def __init__(self) -> None:
        self.runs: dict[str, ReportRun] = {}
        self.kept: dict[tuple[str, int, str], list[ReportRow]] = {}
        self.on_rows: Callable[[], None] = lambda: None

    def run(self, workspace: str) -> ReportRun | None:
        return self.runs.get(workspace)

    def rows(self, workspace: str, run: int, part: str, segment_key: str, span: tuple[str, str], most: int) -> Sequence[ReportRow]:
        self.on_rows()
        rows = [row for row in self.kept[workspace, run, part] if row.segment_key == segment_key]
        return sorted((row for row in rows if span[0] <= row.place < span[1]), key=lambda row: row.place)[:most]


class MemoryCampaignCounts:
    """The counts that the projector would have written; tests put them in by hand."""

    def __init__(self) -> None:
        self.day_rows: list[CountedDay] = []
        self.arm_rows: list[CountedArm] = []

    def days(self, _workspace: str, _campaign: str, first: int, last: int) -> Sequence[CountedDay]:
        return [row for row in self.day_rows if first <= row.day <= last]

    def arms(self, _workspace: str, _campaign: str) -> Sequence[CountedArm]:
        return self.arm_rows


class MemoryAnswers:
    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], tuple[str, Stored]] = {}

    def reserve(self, workspace: str, idempotency_key: str, fingerprint: str) -> tuple[str, Stored] | None:
        found = self.kept.get((workspace, idempotency_key))
        if found is None:
            self.kept[workspace, idempotency_key] = (fingerprint, Stored(0, "", None))
        return found

    def store(self, workspace: str, idempotency_key: str, fingerprint: str, answer: Stored) -> None:
        self.kept[workspace, idempotency_key] = (fingerprint, answer)

    def release(self, workspace: str, idempotency_key: str) -> None:
        self.kept.pop((workspace, idempotency_key), None)


class MemoryAudience:
    """What the projector would have written; tests put it in by hand."""

    def __init__(self) -> None:
        self.reported: dict[int, ReportedProgress] = {}
        self.member_rows: list[MemberRow] = []
        self.day_rows: list[Day] = []
        self.user_rows: dict[str, list[Membership]] = {}
        self.past_rows: dict[str, list[PastMembership]] = {}
        self.event_rows: dict[str, list[EventRow]] = {}
        self.profiles: dict[str, Profile] = {}

    def progress(self) -> Mapping[int, ReportedProgress]:
        return self.reported

    def versions(self, _workspace: str, _kind: str, _key: str, _after: tuple[int, int], _most: int) -> Sequence[Version]:
        return []

    def members(self, _workspace: str, _segment_key: str, after: tuple[int, str], most: int) -> Sequence[MemberRow]:
        return [row for row in sorted(self.member_rows) if (row.bucket, row.user_id) > after][:most]

    def counts(self, _workspace: str, _segment_key: str) -> tuple[int, int]:
        return sum(day.entered for day in self.day_rows), sum(day.exited for day in self.day_rows)

    def sizes(self, workspace: str, keys: Sequence[str]) -> Sequence[int]:
        return [entered - exited for entered, exited in (self.counts(workspace, key) for key in keys)]

    def days(self, _workspace: str, _segment_key: str) -> Sequence[Day]:
        return self.day_rows

    def memberships(self, _workspace: str, users: Sequence[str]) -> Sequence[Sequence[Membership]]:
        return [self.user_rows.get(user, []) for user in users]

    def past_memberships(self, _workspace: str, user_id: str) -> Sequence[PastMembership]:
        return self.past_rows.get(user_id, [])

    def events(self, _workspace: str, user_id: str, before: tuple[int, str], most: int) -> Sequence[EventRow]:
        rows = sorted(self.event_rows.get(user_id, []), reverse=True)
        return [row for row in rows if (row.event_time_ms, row.event_id) < before][:most]

    def profile(self, _workspace: str, user_id: str) -> Profile | None:
        return self.profiles.get(user_id)


class MemoryLists:
    """Who is on which list."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str, str], int] = {}
        self.owners: dict[tuple[str, str], str] = {}

    def put(self, workspace: str, key: str, users: Sequence[str], generation: int) -> None:
        self.kept |= {(workspace, key, user): generation for user in users}

    def drop(self, workspace: str, key: str, users: Sequence[str]) -> None:
        for user in users:
            self.kept.pop((workspace, key, user), None)

    def rows(self, workspace: str, key: str, after: tuple[int, str], most: int) -> Sequence[ListRow]:
        found = [ListRow(len(user) % 2, user, made) for (w, k, user), made in self.kept.items() if (w, k) == (workspace, key)]
        return sorted(row for row in found if (row.bucket, row.user_id) > after)[:most]

    def holding(self, workspace: str, keys: Sequence[str], user: str) -> list[str]:
        return [key for key in keys if (workspace, key, user) in self.kept]

    def reserve(self, workspace: str, key: str, owner: str) -> bool:
        return self.owners.setdefault((workspace, key), owner) == owner

    def release(self, workspace: str, key: str, owner: str) -> None:
        if self.owners.get((workspace, key)) == owner:
            del self.owners[workspace, key]


class MemoryCredentials:
    """A topic of credentials that its only reader has always read."""

    def __init__(self, is_down: Callable[[], bool]) -> None:
        self.records: list[tuple[bytes, Record | None]] = []
        self.known = Credentials()
        self.unread = False
        self._is_down = is_down

    def value(self) -> Credentials:
        return self.known

    def is_read(self) -> bool:
        return not self.unread

    def refresh(self) -> Credentials:
        if self._is_down():
            raise BrokerUnavailable("the broker is down")
        return self.known

    def publish(self, key: bytes, record: Mapping[str, Any] | None, _author: Author) -> None:
        if self._is_down():
            raise BrokerUnavailable("the broker is down")
        self.records.append((key, record))
        assert fold_credentials(self.known, key, record) == Done(self.known)


class MemoryPeople:
    """The states of a messenger, and the topics of consent and suppressions, in memory."""

    def __init__(self) -> None:
        self.known: KnownPerson | None = None
        self.by_user: dict[str, KnownPerson] = {}
        self.tests: list[tuple[str, Mapping[str, Any]]] = []
        self.consents: list[tuple[str, RequestedConsent]] = []
        self.suppressed: list[tuple[str, RequestedSuppressions]] = []
        self.kinds: dict[tuple[str, str, str], str] = {}
        """(workspace, channel, digest) -> the kind of a suppression."""
        self.is_unread = False

    def person(self, workspace: str, user_id: str) -> KnownPerson | None:
        return self.known

    def people(self, workspace: str, users: Sequence[str]) -> Mapping[str, KnownPerson] | None:
        """The states by user, or that of every person."""
        if self.known is None and not self.by_user:
            return None
        nothing = KnownPerson(PersonState(), 1_772_357_400_000)
        return {user: self.by_user.get(user, self.known or nothing) for user in users}

    def test_messages(self, author: Author, channel: str, requests: Sequence[Mapping[str, Any]]) -> None:
        self.tests += [(channel, request) for request in requests]

    def consent(self, author: Author, user_id: str, change: RequestedConsent) -> int:
        self.consents.append((user_id, change))
        return 1_772_357_400_000

    def suppression_of(self, workspace: str) -> SuppressionOf:
        if self.is_unread:
            raise BrokerUnavailable("suppressions could not be read to its end: timed out")
        return lambda channel, digest: self.kinds.get((workspace, channel, digest))

    def suppressions(self, author: Author, channel: str, wanted: RequestedSuppressions) -> None:
        self.suppressed.append((channel, wanted))


class MemoryMessenger:
    """A messenger that has every definition at once, or never."""

    behind: tuple[int, ...] = ()

    def is_present(self) -> bool:
        return True

    def await_definitions(self) -> None:
        if self.behind:
            raise MessengerBehind(self.behind)


class MemoryFeed:
    """Partitions as lists of (workspace, record); None is a marker that a transaction left."""

    def __init__(self, partitions: int = 2) -> None:
        self.partitions: list[list[tuple[str, dict[str, Any]] | None]] = [[] for _ in range(partitions)]
        self.first = 0
        self.silent = False

    def spans(self) -> Sequence[Span]:
        return [Span(self.first, max(self.first, len(records))) for records in self.partitions]

    def offsets_at(self, instant_ms: int) -> Sequence[int | None]:
        """Return the first records at that instant or later; the timestamp of a record is its `received_at`."""
        return [
            next((place for place, kept in enumerate(records) if kept and kept[1]["received_at"] >= instant_ms * 1000), None)
            for records in self.partitions
        ]

    @contextmanager
    def reading(self, wanted: Wanted, start: Mapping[int, int]) -> Iterator["MemoryFollower"]:
        yield MemoryFollower(self, wanted, dict(start))


@dataclass
class MemoryFollower:
    feed: MemoryFeed
    wanted: Wanted
    at: dict[int, int]

    def take(self, most: int, _wait_seconds: float) -> Sequence[FeedStep]:
        found: list[FeedStep] = []
        for number, offset in self.at.items() if not self.feed.silent else ():
            for place, kept in enumerate(self.feed.partitions[number][offset : offset + most - len(found)], offset):
                record = kept[1] if kept is not None and self.wanted(f"{kept[0]}/user".encode(), b"") else None
                found.append(FeedStep(number, place + 1, record))
                self.at[number] = place + 1
        return found


class MemoryDefinitions:
    def __init__(self) -> None:
        self.shown: dict[Identity, Definition] = {}

    def definition(self, workspace: str, kind: str, key: str) -> Definition | None:
        return self.shown.get((workspace, kind, key))

    def everywhere(self, kind: str) -> Sequence[InForce]:
        found = ((workspace, one) for (workspace, k, _), one in self.shown.items() if k == kind)
        return [InForce(workspace, one.key, one.version, one.status) for workspace, one in found]

    def definitions(self, workspace: str, kind: str, after: str = "", most: int | None = None) -> Sequence[Definition]:
        found = sorted((one.key, one) for (w, k, _), one in self.shown.items() if (w, k) == (workspace, kind) and one.key > after)
        return [one for _, one in found][:most]


class MemorySqlRuns:
    """`rows`: (workspace, key) -> the newest run, `incremental`: its field; `runs`: the ids of all runs that were queued."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], RunRow] = {}
        self.incremental: dict[tuple[str, str], str | None] = {}
        self.runs: list[str] = []

    def every(self) -> Sequence[RunRow]:
        return list(self.rows.values())

    def of(self, workspace: str) -> Sequence[RunRow]:
        return [row for (own, _), row in self.rows.items() if own == workspace]

    def queue(self, trait: ScheduledSql, run: str, now_ms: int, before: RunRow | None) -> bool:
        place = (trait.workspace, trait.key)
        if self.rows.get(place) != before:
            return False
        row = before or RunRow(*place, trait.version, trait.archived, WAITING, now_ms)
        self.rows[place] = row._replace(
            version=trait.version, archived=trait.archived, state=WAITING, queued_at_ms=now_ms, message=None, checks=trait.checks
        )
        self.incremental[place] = trait.incremental
        self.runs.append(run)
        return True


@dataclass
class MemoryAudit:
    """The table of the audit log: the rows that the projector would write for these records."""

    records: list[Record]

    def read(self, workspace: str, period: int, after: AuditPosition, most: int) -> Sequence[AuditRow]:
        found = []
        for record in self.records:
            outcome = rows_of(AUDIT, record, Position(0, 0))
            assert isinstance(outcome, Done)
            [row] = outcome.value
            if row.key[:2] == (workspace, period) and row.key[2:] > after:
                found.append(AuditRow(*row.key[2:], *row.columns))
        return sorted(found)[:most]


@dataclass
class World:
    """All stores, a clock that moves only when the code sleeps, and a projector that can be slow."""

    claims: MemoryClaims = field(default_factory=MemoryClaims)
    reader: MemoryDefinitions = field(default_factory=MemoryDefinitions)
    audience: MemoryAudience = field(default_factory=MemoryAudience)
    answers: MemoryAnswers = field(default_factory=MemoryAnswers)
    feed: MemoryFeed = field(default_factory=MemoryFeed)
    outcome_log: MemoryFeed = field(default_factory=MemoryFeed)
    audited: list[Record] = field(default_factory=list)
    """The records of the audit log, which the projector in memory writes at once."""
    audit_is_down: bool = False
    reports: "MemoryReports" = field(default_factory=MemoryReports)
    campaign_counts: MemoryCampaignCounts = field(default_factory=MemoryCampaignCounts)
    import_store: "MemoryImports" = field(default_factory=MemoryImports)
    sql_trait_store: "MemorySqlRuns" = field(default_factory=MemorySqlRuns)
    sql_view_store: "MemorySqlRuns" = field(default_factory=MemorySqlRuns)
    event_type_check_store: "MemorySqlRuns" = field(default_factory=MemorySqlRuns)
    list_store: MemoryLists = field(default_factory=MemoryLists)
    states: MemoryStates = field(default_factory=MemoryStates)
    pasts: MemoryPasts = field(default_factory=MemoryPasts)
    rng: random.Random = field(default_factory=lambda: random.Random(7))
    list_changes: list[ListChange] = field(default_factory=list)
    published: list[Change] = field(default_factory=list)
    runs: dict[str, Run] = field(default_factory=dict)
    backfill_requests: list[Record] = field(default_factory=list)
    views: "MemoryViews" = field(default_factory=MemoryViews)
    micros: int = 1_000_000_000
    broker_is_down: bool = False
    projector_is_down: bool = False
    on_sleep: Callable[[], None] = lambda: None
    slept_seconds: float = 0.0
    timezones: str = ""
    quota: Quota | None = None
    messenger: "MemoryMessenger | None" = None
    vault: Vault = field(default_factory=lambda: Vault(Sealer({"first": b"1" * 32})))
    people: MemoryPeople = field(default_factory=MemoryPeople)
    history_days: int = 30
    computed: ComputedProgress | None = None
    written: dict[tuple[str, str], Written] | None = None
    """How far broadcasts are written; None: not known."""
    broadcast_reads: list[list[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.created_tokens = MemoryCredentials(lambda: self.broker_is_down)
        self.created_keys = MemoryCredentials(lambda: self.broker_is_down)

    @property
    def commands(self) -> Commands:
        zone_of = Timezones(self.timezones).of
        return Commands(
            self.claims,
            self.reader,
            self.publish,
            lambda: self.micros,
            self.sleep,
            self.queries.is_stopped,
            zone_of,
            self.quota,
            self.messenger,
            self.vault,
            lambda key: self.views.entry(key) is not None,
        )

    @property
    def queries(self) -> Queries:
        return Queries(
            self.reader,
            self.audience,
            2,
            self.backfills.of_segment,
            self.history_days,
            lambda: self.computed,
            self.broadcasts_of,
            {"computed_trait": self.sql_traits.shown, "view": self.sql_views.shown, "event_type": self.event_type_checks.shown},
        )

    def broadcasts_of(self, workspace: str, keys: Sequence[str]) -> Mapping[str, Written] | None:
        self.broadcast_reads.append(list(keys))
        return None if self.written is None else {key: self.written.get((workspace, key), Written()) for key in keys}

    @property
    def sql_traits(self) -> SqlRuns:
        return SqlRuns(self.sql_trait_store, self.reader, lambda: self.micros // 1000)

    @property
    def sql_views(self) -> SqlRuns:
        return SqlRuns(self.sql_view_store, self.reader, lambda: self.micros // 1000, kind=VIEWS)

    @property
    def event_type_checks(self) -> SqlRuns:
        return SqlRuns(self.event_type_check_store, self.reader, lambda: self.micros // 1000, kind=EVENT_TYPES)

    @property
    def imports(self) -> Imports:
        zone_of = Timezones(self.timezones).of
        known = partial(has_list, self.reader)
        return Imports(self.import_store, lambda: self.micros // 1000, sealer=self.vault.sealer, zone_of=zone_of, has_list=known)

    @property
    def backfills(self) -> Backfills:
        return Backfills(lambda: self.runs, self.backfill_requests.append, lambda: self.micros)

    @property
    def lists(self) -> Lists:
        return Lists(self.list_store, self.publish_list_change, lambda: self.micros)

    @property
    def previews(self) -> Previews:
        return Previews(Definitions(self.reader), self.audience, self.states, self.pasts, Clock.EVENT, self.history_days, self.rng)

    @property
    def exports(self) -> Exports:
        return Exports(self.queries, self.list_store, self.states)

    def plain(self, kind: Kind, made: Definition | Change) -> Document:
        """The document with its secrets."""
        return self.vault.opened(kind, "acme", made.document)

    def publish_list_change(self, change: ListChange) -> None:
        if self.broker_is_down:
            raise BrokerUnavailable("the broker is down")
        self.list_changes.append(change)

    @property
    def services(self) -> Services:
        settings = "see=viewer:acme,make=marketer:acme,approve=approver:acme,rule=admin:acme"
        tokens = Tokens(settings, self.created_tokens, lambda: self.micros // 1000)
        credentials = (
            CredentialCommands(TOKEN, self.created_tokens, lambda: self.micros),
            CredentialCommands(WRITE_KEY, self.created_keys, lambda: self.micros),
        )
        outcomes = Outcomes(self.outcome_log, lambda: self.micros // 1000)
        feeding = (self.lists, self.feed, outcomes, Streams(2, 0.01), MaterialisedViews(self.views), Reports(self.reports))
        reading = (
            self.previews,
            self.exports,
            self.backfills,
            self.imports,
        )
        audit = Audit(self.publish_audit, MemoryAudit(self.audited), lambda: self.micros)
        people, counts = self.people, self.campaign_counts
        return Services(
            self.commands, self.queries, self.answers, tokens, *feeding, *reading, *credentials, audit, people, people, counts,
            people.suppression_of, self.sql_traits, self.sql_views,
        )  # fmt: skip

    def publish_audit(self, record: Mapping[str, Any]) -> None:
        if self.audit_is_down:
            raise BrokerUnavailable("the broker is down")
        self.audited.append(dict(record))

    def publish(self, change: Change, _traceparent: str | None) -> None:
        if self.broker_is_down:
            raise BrokerUnavailable("the broker is down")
        self.published.append(change)
        if not self.projector_is_down:
            self.reader.shown[change.workspace, change.kind, change.key] = change.definition()

    def sleep(self, seconds: float) -> None:
        self.slept_seconds += seconds
        self.micros += int(seconds * 1_000_000)
        self.on_sleep()
