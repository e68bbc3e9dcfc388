"""Edge: one API process: what it starts, and in which order it stops."""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio.to_thread
from fastapi import FastAPI
from granian.constants import Interfaces

from starling_api.backfills.wiring import BackfillService
from starling_api.definitions.commands.commands import Commands
from starling_api.feed.streams import Streams
from starling_api.feed.topic_log import TopicLog
from starling_api.imports.wiring import ImportService
from starling_api.messages.people import MessengerPeople
from starling_api.messages.suppressions import KnownSuppressions
from starling_api.preview.state_reader import SegmenterStates
from starling_api.self_audit.service import SelfAuditService
from starling_api.settings import ApiSettings
from starling_api.sql.wiring import SqlService
from starling_api.traits.progress import TraitProgress
from starling_api.webhooks.sender import WebhookSender
from starling_common.cassandra.database import Database
from starling_common.cassandra.sessions import DatabaseUnavailable
from starling_common.http.server import ConnectionCap, http_server
from starling_common.kafka.clients import BrokerUnavailable
from starling_common.kafka.followed_topic import FollowedTopic
from starling_common.telemetry.logs import log
from starling_common.wire import RegistryUnavailable, SchemaMissing

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
