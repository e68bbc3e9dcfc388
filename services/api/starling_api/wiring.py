"""Builds the app and its dependencies from the settings. No other module imports both."""

import asyncio
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio.to_thread
from fastapi import FastAPI
from granian.constants import Interfaces

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
from starling_api.definitions.commands import Commands
from starling_api.definitions.in_force import Definitions
from starling_api.definitions.kinds import EVENT_TYPES, TRAITS, VIEWS
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
from starling_api.imports.store import CassandraImports
from starling_api.imports.wiring import ImportService
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
from starling_api.reports.audience_report import Reports
from starling_api.reports.campaign_store import CassandraCampaignCounts
from starling_api.reports.store import CassandraReports
from starling_api.reports.view_store import CassandraViews
from starling_api.reports.views import MaterialisedViews
from starling_api.self_audit.service import SelfAuditService
from starling_api.self_audit.wiring import audited_states, build_self_audit
from starling_api.settings import ApiSettings
from starling_api.sql.runs import SqlRuns
from starling_api.sql.store import CassandraRuns
from starling_api.sql.wiring import SqlService
from starling_api.traits.progress import TraitProgress
from starling_api.users.exports import Exports
from starling_api.users.queries import Queries
from starling_api.users.read_models import CassandraAudience
from starling_api.webhooks.sender import WebhookSender
from starling_common.cassandra.database import Database
from starling_common.cassandra.sessions import DatabaseUnavailable
from starling_common.clusters import check_topic
from starling_common.http.rate_limits import Rate
from starling_common.http.server import ConnectionCap, http_server
from starling_common.kafka.clients import BrokerUnavailable
from starling_common.kafka.followed_topic import FollowedTopic
from starling_common.kafka.topics import MEMBERSHIP, OUTCOMES, load_catalogue, stage
from starling_common.sealing import CURE, Sealer
from starling_common.telemetry.logs import log
from starling_common.telemetry.metrics import Metrics
from starling_common.time.instants import wall_clock_micros, wall_clock_ms
from starling_common.time.timezones import Timezones
from starling_common.wire import Registry, RegistryUnavailable, SchemaMissing
from starling_segments import CostLimits

_SWEEP_SECONDS = 30.0
"""Interval of the search for claims whose process died before it published them."""


@dataclass
class Threads:
    """The threads of the process that must not end while it serves."""

    backfill: BackfillService
    imports: ImportService
    sql_traits: SqlService
    sweep: threading.Thread | None = None

    def failures(self) -> dict[str, str | None]:
        """Return the failed checks by name that only a restart of the process corrects. Does not block."""
        ended = self.sweep is not None and not self.sweep.is_alive()
        return {
            "sweep": "the thread has ended: restart this process" if ended else None,
            **self.backfill.failures(),
            **self.imports.failures(),
            **self.sql_traits.failures(),
        }


@dataclass
class Api:
    """One API process: the HTTP server, the thread that completes abandoned changes, and the connections."""

    app: FastAPI
    settings: ApiSettings
    commands: Commands
    database: Database
    logs: Sequence[TopicLog]
    streams: Streams
    states: Sequence[SegmenterStates | MessengerPeople]
    backfill: BackfillService
    imports: ImportService
    threads: Threads
    self_audit: SelfAuditService
    webhook_sender: WebhookSender
    followed: Sequence[FollowedTopic[Any] | TraitProgress | KnownSuppressions]
    _stopping: threading.Event = field(default_factory=threading.Event)

    async def serve(self, stop: asyncio.Event) -> None:
        """Serve requests until `stop` is set, then finish the requests in progress and close every connection."""
        anyio.to_thread.current_default_thread_limiter().total_tokens = self.settings.threads
        http = self.settings.http
        server = http_server(self.app, http, Interfaces.ASGINL)
        cap = asyncio.ensure_future(ConnectionCap(http.port, http.max_connections_per_address).watch())
        self.threads.sweep = threading.Thread(target=self._sweep, name="sweep", daemon=True)
        self.threads.sweep.start()
        self.backfill.start()
        self.self_audit.start()
        self.imports.start()
        self.threads.sql_traits.start()
        for topic in self.followed:
            topic.start()
        serving = asyncio.ensure_future(server.serve())
        await asyncio.wait({serving, asyncio.ensure_future(stop.wait())}, return_when=asyncio.FIRST_COMPLETED)
        self._stopping.set()
        self.threads.sweep = None
        cap.cancel()
        # At the same time: each waits for work that depends on this process.
        stops = (self.backfill.stop, self.imports.stop, self.threads.sql_traits.stop, self.self_audit.stop)
        await asyncio.gather(*(asyncio.get_running_loop().run_in_executor(None, stop_job) for stop_job in stops))
        for topic in self.followed:
            await asyncio.get_running_loop().run_in_executor(None, topic.stop)
        self.streams.end()
        server.stop()  # type: ignore[no-untyped-call]
        await serving
        await self.webhook_sender.close()
        self.streams.close()
        for topic_log in self.logs:
            topic_log.close()
        for states in self.states:
            states.close()
        self.database.close()

    def _sweep(self) -> None:
        while True:
            try:
                if finished := self.commands.finish_abandoned():
                    log(__name__).warning("abandoned_changes_published", changes=finished)
            except (DatabaseUnavailable, BrokerUnavailable, RegistryUnavailable, SchemaMissing) as error:
                log(__name__).warning("sweep_postponed", error=str(error))
            if self._stopping.wait(_SWEEP_SECONDS):
                return


def build_api(settings: ApiSettings) -> Api:
    """Return an API process that has no open connection yet. Raises: ValueError for invalid tokens, time zones or keys."""
    database, metrics = Database(settings.cassandra), Metrics()
    definitions = CassandraDefinitions(database)
    registry = Registry(settings.registry.url)
    feed = TopicLog(settings.kafka.brokers, registry, MEMBERSHIP, "SegmentMembershipChanged")
    outcome_log = TopicLog(settings.kafka.brokers, registry, OUTCOMES, "IngestOutcome")
    streams = Streams(settings.feed_streams, settings.feed_heartbeat_seconds, settings.workspace_feed_streams)
    partitions = load_catalogue(settings.profile_partitions).profile_partitions
    audience, states = CassandraAudience(database, partitions), SegmenterStates(database, settings.kafka.brokers, registry)
    failures = metrics.gauge(FAILURES)
    zone_of, sealer = Timezones(settings.timezones).of, _sealer(settings)
    imports = Imports(
        CassandraImports(database),
        wall_clock_ms,
        is_started=settings.imports_runner != "none",
        sealer=sealer,
        zone_of=zone_of,
        has_list=partial(has_list, definitions),
    )
    backfill, import_service = BackfillService(settings, registry, failures), ImportService(settings, imports, metrics)
    policy = BackfillPolicy(
        settings.backfill_from_records, backfill.topics.largest_partition, Definitions(definitions), audience, partitions
    )
    publisher = Publisher(settings.kafka.brokers, registry, policy.awaits_backfill)
    backfills = Backfills(backfill.runs, backfill.topics.publish, wall_clock_micros)
    trait_progress = TraitProgress(settings.kafka.brokers, registry, stage("profiles"))
    broadcasts = Broadcasts(settings.kafka.brokers, registry)
    runner = settings.sql_traits_runner
    sql_traits, sql_views, event_type_checks = (
        SqlRuns(CassandraRuns(database, table), definitions, wall_clock_ms, is_started=runner != "none", kind=kind)
        for kind, table in ((TRAITS, "sql_traits"), (VIEWS, "sql_views"), (EVENT_TYPES, "event_type_checks"))
    )
    materialised = CassandraViews(database)
    queries = Queries(
        definitions,
        audience,
        partitions,
        backfills.of_segment,
        settings.history_days,
        trait_progress.value,
        broadcasts.written,
        {TRAITS.name: sql_traits.shown, VIEWS.name: sql_views.shown, EVENT_TYPES.name: event_type_checks.shown},
    )
    list_store = CassandraLists(database)
    limits = CostLimits(settings.segment_work, settings.segment_state_bytes)
    quota = Quota(limits, settings.workspace_segments, settings.workspace_work)
    claims = CassandraClaims(database)
    tokens, write_keys = (CredentialTopic(settings.kafka.brokers, registry, kind.topic) for kind in (TOKEN, WRITE_KEY))
    people = MessengerPeople(database, settings.kafka.brokers, registry)
    messenger = MessengerProgress(settings.kafka.brokers, registry, partitions)
    suppressions = KnownSuppressions(settings.kafka.brokers, registry)
    commands = Commands(
        claims,
        definitions,
        publisher.publish,
        wall_clock_micros,
        time.sleep,
        queries.is_stopped,
        zone_of,
        quota=quota,
        messenger=messenger,
        vault=Vault(sealer),
        is_view=lambda key: materialised.entry(key) is not None,
    )
    services = Services(
        commands=commands,
        queries=queries,
        answers=CassandraResponses(database),
        tokens=Tokens(settings.tokens.get_secret_value(), tokens.followed),
        lists=Lists(list_store, ListFeed(settings.kafka.brokers, registry, partitions).publish, wall_clock_micros),
        feed=feed,
        outcomes=Outcomes(outcome_log, wall_clock_ms),
        streams=streams,
        materialised_views=MaterialisedViews(materialised),
        reports=Reports(CassandraReports(database)),
        campaign_counts=CassandraCampaignCounts(database),
        suppressed=suppressions.of,
        sql_traits=sql_traits,
        sql_views=sql_views,
        previews=Previews(
            Definitions(definitions),
            audience,
            states,
            CassandraPasts(database, partitions),
            settings.clock,
            settings.history_days,
        ),
        exports=Exports(queries, list_store, states),
        backfills=backfills,
        imports=imports,
        token_commands=CredentialCommands(TOKEN, tokens, wall_clock_micros),
        write_key_commands=CredentialCommands(WRITE_KEY, write_keys, wall_clock_micros),
        people=people,
        message_topics=MessageTopics(settings.kafka.brokers, registry, partitions, wall_clock_micros),
        audit=Audit(AuditTopic(settings.kafka.brokers, registry).publish, CassandraAudit(database), wall_clock_micros),
        body_timeout_seconds=settings.body_timeout_seconds,
        gate=Gate(settings.workspace_previews, settings.workspace_previews_waiting, settings.workspace_previews_wait_seconds),
        rate_limits=RateLimits(_rates(settings)),
        webhook_sender=WebhookSender(allow_private=settings.allow_private_addresses),
        check_topic=partial(check_topic, own_brokers=settings.kafka.brokers, allow_private=settings.allow_private_addresses),
    )
    origins = [origin.strip() for origin in settings.cors_origins.split(",") if origin.strip()]
    threads = Threads(backfill, import_service, SqlService(settings, (sql_traits, sql_views, event_type_checks), metrics))

    def ready() -> dict[str, str | None]:
        # Reads need the database alone, so an unreachable broker must not take a running process out of the load balancer: the
        # tokens that were read remain in use, which is a warning. A process that has read none is not ready.
        return {"database": database.problem(), "tokens": tokens.followed.problem()}

    app = build_app(services, metrics, ready, origins, alive=threads.failures)
    followed = [*(topic.followed for topic in (tokens, write_keys, messenger, broadcasts)), trait_progress, suppressions]
    audited = audited_states(database, settings.kafka.brokers, registry)
    stopping = threading.Event()
    audit = build_self_audit(settings, database, registry, audited, stopping.wait)
    self_audit = SelfAuditService(audit.run, metrics, settings.self_audit_interval_seconds, stopping)
    connections = database, (feed, outcome_log), streams, (states, people, audited)
    return Api(
        app, settings, commands, *connections, backfill, import_service, threads, self_audit, services.webhook_sender, followed
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
