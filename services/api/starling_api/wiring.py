"""Builds the app and its dependencies from the settings. No other module imports both."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from starling_api.app import build_app
from starling_api.audit.audit import Audit
from starling_api.audit.table import CassandraAudit
from starling_api.audit.topic import AuditTopic
from starling_api.backfills.backfills import BackfillPolicy, Backfills
from starling_api.backfills.wiring import BackfillService
from starling_api.campaigns.broadcasts import Broadcasts
from starling_api.campaigns.messenger import MessengerProgress
from starling_api.credentials.bodies import TOKEN, WRITE_KEY
from starling_api.credentials.commands import CredentialCommands
from starling_api.credentials.topic import CredentialTopic
from starling_api.definitions.commands.commands import Commands
from starling_api.definitions.in_force import Definitions
from starling_api.definitions.publisher import Publisher
from starling_api.definitions.quota import Quota
from starling_api.definitions.repository import CassandraClaims, CassandraDefinitions, CassandraResponses
from starling_api.definitions.vault import Vault
from starling_api.feed.streams import Streams
from starling_api.feed.topic_log import TopicLog
from starling_api.http.access.auth import Tokens
from starling_api.http.access.gate import Gate
from starling_api.http.access.rate_limits import RateLimits, Rates
from starling_api.http.dependencies import Services
from starling_api.imports.imports import Imports
from starling_api.imports.wiring import ImportService, build_imports
from starling_api.jobs.runner import FAILURES
from starling_api.lists.lists import Lists, has_list
from starling_api.lists.publisher import ListFeed
from starling_api.lists.store import CassandraLists
from starling_api.messages.people import MessengerPeople
from starling_api.messages.publisher import MessageTopics
from starling_api.messages.suppressions import KnownSuppressions
from starling_api.outcomes.outcomes import Outcomes
from starling_api.preview.past_reader import CassandraPasts
from starling_api.preview.previews import Previews
from starling_api.preview.state_reader import SegmenterStates
from starling_api.process import Api, Threads
from starling_api.reports.audience_report import Reports
from starling_api.reports.campaign_store import CassandraCampaignCounts
from starling_api.reports.store import CassandraReports
from starling_api.reports.view_store import CassandraViews
from starling_api.reports.views import MaterialisedViews
from starling_api.self_audit.wiring import audited_states, build_self_audit_service
from starling_api.settings import ApiSettings
from starling_api.sql.wiring import SqlKinds, SqlService, build_sql_runs
from starling_api.traits.progress import TraitProgress
from starling_api.users.exports import Exports
from starling_api.users.queries import Queries
from starling_api.users.read_models import CassandraAudience
from starling_api.webhooks.sender import WebhookSender
from starling_common.cassandra.database import Database
from starling_common.http.rate_limits import Rate
from starling_common.kafka.clusters import check_topic
from starling_common.kafka.followed_topic import FollowedTopic
from starling_common.kafka.topics import MEMBERSHIP, OUTCOMES, load_catalogue, stage
from starling_common.security.sealing import CURE, Sealer
from starling_common.telemetry.logs import log
from starling_common.telemetry.metrics import Metrics
from starling_common.time.instants import wall_clock_micros, wall_clock_ms
from starling_common.time.timezones import Timezones
from starling_common.wire import Registry
from starling_segments import CostLimits


@dataclass(frozen=True, slots=True)
class _Shared:
    """What the components share: connections without traffic, and values of the settings."""

    settings: ApiSettings
    metrics: Metrics
    database: Database
    registry: Registry
    definitions: CassandraDefinitions
    partitions: int
    audience: CassandraAudience
    zone_of: Callable[[str], str]
    sealer: Sealer

    @property
    def brokers(self) -> str:
        return self.settings.kafka.brokers


class _Followed(NamedTuple):
    """What the process follows from its start on."""

    tokens: CredentialTopic
    write_keys: CredentialTopic
    messenger: MessengerProgress
    broadcasts: Broadcasts
    trait_progress: TraitProgress
    suppressions: KnownSuppressions

    def started(self) -> Sequence[FollowedTopic[Any] | TraitProgress | KnownSuppressions]:
        """Return what has to be started and stopped, in this order."""
        topics = (topic.followed for topic in (self.tokens, self.write_keys, self.messenger, self.broadcasts))
        return [*topics, self.trait_progress, self.suppressions]


class _Readers(NamedTuple):
    """What requests and the self-audit read on demand."""

    feed: TopicLog
    outcomes: TopicLog
    streams: Streams
    states: SegmenterStates
    people: MessengerPeople
    audited: SegmenterStates


class _Jobs(NamedTuple):
    """The Spark jobs that the process starts, and what they are started for."""

    backfill: BackfillService
    backfills: Backfills
    imports: Imports
    import_service: ImportService
    sql: SqlKinds
    sql_service: SqlService


def build_api(settings: ApiSettings) -> Api:
    """Return an API process that has no open connection yet. Raises: ValueError for invalid tokens, time zones or keys."""
    shared = _shared(settings)
    followed, readers, jobs = _followed(shared), _readers(shared), _jobs(shared)
    services = _services(shared, followed, readers, jobs)
    threads = Threads(jobs.backfill, jobs.import_service, jobs.sql_service)

    def ready() -> dict[str, str | None]:
        # Reads need the database alone, so an unreachable broker must not take a running process out of the load balancer: the
        # tokens that were read remain in use, which is a warning. A process that has read none is not ready.
        return {"database": shared.database.problem(), "tokens": followed.tokens.followed.problem()}

    origins = [origin.strip() for origin in settings.cors_origins.split(",") if origin.strip()]
    return Api(
        app=build_app(services, shared.metrics, ready, origins, alive=threads.failures),
        settings=settings,
        commands=services.commands,
        database=shared.database,
        logs=(readers.feed, readers.outcomes),
        streams=readers.streams,
        states=(readers.states, readers.people, readers.audited),
        backfill=jobs.backfill,
        imports=jobs.import_service,
        threads=threads,
        self_audit=build_self_audit_service(settings, shared.database, shared.registry, readers.audited, shared.metrics),
        webhook_sender=services.webhook_sender,
        followed=followed.started(),
    )


def _shared(settings: ApiSettings) -> _Shared:
    database, partitions = Database(settings.cassandra), load_catalogue(settings.profile_partitions).profile_partitions
    return _Shared(
        settings,
        Metrics(),
        database,
        Registry(settings.registry.url),
        CassandraDefinitions(database),
        partitions,
        CassandraAudience(database, partitions),
        Timezones(settings.timezones).of,
        _sealer(settings),
    )


def _followed(shared: _Shared) -> _Followed:
    brokers, registry = shared.brokers, shared.registry
    return _Followed(
        CredentialTopic(brokers, registry, TOKEN.topic),
        CredentialTopic(brokers, registry, WRITE_KEY.topic),
        MessengerProgress(brokers, registry, shared.partitions),
        Broadcasts(brokers, registry),
        TraitProgress(brokers, registry, stage("profiles")),
        KnownSuppressions(brokers, registry),
    )


def _readers(shared: _Shared) -> _Readers:
    settings, database, brokers, registry = shared.settings, shared.database, shared.brokers, shared.registry
    return _Readers(
        TopicLog(brokers, registry, MEMBERSHIP, "SegmentMembershipChanged"),
        TopicLog(brokers, registry, OUTCOMES, "IngestOutcome"),
        Streams(settings.feed_streams, settings.feed_heartbeat_seconds, settings.workspace_feed_streams),
        SegmenterStates(database, brokers, registry),
        MessengerPeople(database, brokers, registry),
        audited_states(database, brokers, registry),
    )


def _jobs(shared: _Shared) -> _Jobs:
    settings, metrics = shared.settings, shared.metrics
    backfill = BackfillService(settings, shared.registry, metrics.gauge(FAILURES))
    imports = build_imports(settings, shared.database, shared.sealer, shared.zone_of, partial(has_list, shared.definitions))
    sql = build_sql_runs(settings, shared.database, shared.definitions)
    return _Jobs(
        backfill,
        Backfills(backfill.runs, backfill.topics.publish, wall_clock_micros),
        imports,
        ImportService(settings, imports, metrics),
        sql,
        SqlService(settings, sql, metrics),
    )


def _services(shared: _Shared, followed: _Followed, readers: _Readers, jobs: _Jobs) -> Services:
    """Return the services of the application."""
    settings, database, brokers, registry = shared.settings, shared.database, shared.brokers, shared.registry
    queries, views, lists = _queries(shared, followed, jobs), CassandraViews(database), CassandraLists(database)
    feed_of_lists = ListFeed(brokers, registry, shared.partitions)
    return Services(
        commands=_commands(shared, followed, jobs, queries, views),
        queries=queries,
        answers=CassandraResponses(database),
        tokens=Tokens(settings.tokens.get_secret_value(), followed.tokens.followed),
        lists=Lists(lists, feed_of_lists.publish, wall_clock_micros),
        feed=readers.feed,
        outcomes=Outcomes(readers.outcomes, wall_clock_ms),
        streams=readers.streams,
        materialised_views=MaterialisedViews(views),
        reports=Reports(CassandraReports(database)),
        campaign_counts=CassandraCampaignCounts(database),
        suppressed=followed.suppressions.of,
        sql_traits=jobs.sql.traits,
        sql_views=jobs.sql.views,
        previews=_previews(shared, readers.states),
        exports=Exports(queries, lists, readers.states),
        backfills=jobs.backfills,
        imports=jobs.imports,
        token_commands=CredentialCommands(TOKEN, followed.tokens, wall_clock_micros),
        write_key_commands=CredentialCommands(WRITE_KEY, followed.write_keys, wall_clock_micros),
        people=readers.people,
        message_topics=MessageTopics(brokers, registry, shared.partitions, wall_clock_micros),
        audit=Audit(AuditTopic(brokers, registry).publish, CassandraAudit(database), wall_clock_micros),
        body_timeout_seconds=settings.body_timeout_seconds,
        gate=Gate(settings.workspace_previews, settings.workspace_previews_waiting, settings.workspace_previews_wait_seconds),
        rate_limits=RateLimits(_rates(settings)),
        webhook_sender=WebhookSender(allow_private=settings.allow_private_addresses),
        check_topic=partial(check_topic, own_brokers=brokers, allow_private=settings.allow_private_addresses),
    )


def _commands(shared: _Shared, followed: _Followed, jobs: _Jobs, queries: Queries, views: CassandraViews) -> Commands:
    settings = shared.settings
    limits = CostLimits(settings.segment_work, settings.segment_state_bytes)
    policy = BackfillPolicy(
        settings.backfill_from_records,
        jobs.backfill.topics.largest_partition,
        Definitions(shared.definitions),
        shared.audience,
        shared.partitions,
    )
    return Commands(
        CassandraClaims(shared.database),
        shared.definitions,
        Publisher(shared.brokers, shared.registry, policy.awaits_backfill).publish,
        wall_clock_micros,
        time.sleep,
        queries.is_stopped,
        shared.zone_of,
        quota=Quota(limits, settings.workspace_segments, settings.workspace_work),
        messenger=followed.messenger,
        vault=Vault(shared.sealer),
        is_view=lambda key: views.entry(key) is not None,
    )


def _queries(shared: _Shared, followed: _Followed, jobs: _Jobs) -> Queries:
    return Queries(
        shared.definitions,
        shared.audience,
        shared.partitions,
        jobs.backfills.of_segment,
        shared.settings.history_days,
        followed.trait_progress.value,
        followed.broadcasts.written,
        {runs.kind.name: runs.shown for runs in jobs.sql},
    )


def _previews(shared: _Shared, states: SegmenterStates) -> Previews:
    return Previews(
        Definitions(shared.definitions),
        shared.audience,
        states,
        CassandraPasts(shared.database, shared.partitions),
        shared.settings.clock,
        shared.settings.history_days,
    )


def _sealer(settings: ApiSettings) -> Sealer:
    sealer = Sealer.of(settings.secrets)
    if sealer.key_id is None:
        log(__name__).warning("no_secrets_key", consequence="webhooks and credentials of targets are refused", cure=CURE)
    return sealer


def _rates(settings: ApiSettings) -> Rates:
    return Rates(
        workspace_reads=Rate.of(settings.workspace_reads_per_second),
        workspace_writes=Rate.of(settings.workspace_writes_per_second),
        token_reads=Rate.of(settings.token_reads_per_second),
        token_writes=Rate.of(settings.token_writes_per_second),
        address=Rate.of(settings.address_requests_per_second),
    )
