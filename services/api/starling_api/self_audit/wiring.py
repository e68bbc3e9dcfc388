"""Wiring: the self-audit of the API, from its settings. It connects at the first run."""

import random
import threading
from collections.abc import Callable
from typing import Final

from starling_api.definitions.in_force import Definitions
from starling_api.definitions.repository import CassandraDefinitions
from starling_api.preview.state_reader import SegmenterStates
from starling_api.self_audit.run import SelfAudit, Stores
from starling_api.self_audit.service import SelfAuditService
from starling_api.self_audit.stores import CassandraMembershipRows, FeedStateTopic, ProjectorPosition
from starling_api.settings import ApiSettings
from starling_api.users.read_models import CassandraAudience
from starling_common.cassandra.database import Database
from starling_common.kafka.topics import load_catalogue
from starling_common.telemetry.metrics import Metrics
from starling_common.wire import Registry

_TAIL_RECORDS: Final = 300_000
"""The most changelog records that a run reads of one partition, in a few seconds; no request waits for it."""
_FEED_RECORDS: Final = 20_000
"""The most records of the feed's state that a run reads, all partitions together."""
_PROJECTOR_SECONDS: Final = 60.0


def audited_states(database: Database, brokers: str, registry: Registry) -> SegmenterStates:
    """Return the states for `build_self_audit`, which the caller closes."""
    return SegmenterStates(database, brokers, registry, _TAIL_RECORDS)


def build_self_audit(
    settings: ApiSettings, database: Database, registry: Registry, states: SegmenterStates, wait: Callable[[float], bool]
) -> SelfAudit:
    """Return the run. `wait`: sleeps for seconds, and returns whether to stop."""
    brokers, rng = settings.kafka.brokers, random.SystemRandom()
    partitions = load_catalogue(settings.profile_partitions).profile_partitions
    stores = Stores(
        Definitions(CassandraDefinitions(database)),
        CassandraAudience(database, partitions),
        states,
        CassandraMembershipRows(database, partitions),
        FeedStateTopic(brokers, registry, max(1, _FEED_RECORDS // partitions), rng),
        ProjectorPosition(brokers, _PROJECTOR_SECONDS, wait),
    )
    return SelfAudit(stores, partitions, settings.clock, settings.self_audit_users, wait, rng=rng)


def build_self_audit_service(
    settings: ApiSettings, database: Database, registry: Registry, states: SegmenterStates, metrics: Metrics
) -> SelfAuditService:
    """Return the thread of the self-audit, which is not started. `states`: as `audited_states`."""
    stopping = threading.Event()
    audit = build_self_audit(settings, database, registry, states, stopping.wait)
    return SelfAuditService(audit.run, metrics, settings.self_audit_interval_seconds, stopping)
