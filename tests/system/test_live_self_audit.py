"""The self-audit of a running platform: no finding while events flow, and exactly the rows that were changed in Cassandra."""

import itertools
import random
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import pytest
from pydantic import SecretStr

from starling_api.self_audit.comparison import Difference, Recorded, Source
from starling_api.self_audit.run import Report, SelfAudit, digest_of
from starling_api.self_audit.wiring import audited_states, build_self_audit
from starling_api.settings import ApiSettings
from starling_common.cassandra.database import Database
from starling_common.cassandra.read_models import member_bucket, user_partition
from starling_common.http.server import PublicHttp
from starling_common.kafka.topics import load_catalogue
from starling_common.settings import Cassandra, Clock, Kafka, SchemaRegistry
from starling_common.wire import Registry
from tests.system.conftest import Platform
from tests.system.live import define, track

WORKSPACE = "default"
PARTITIONS = load_catalogue().profile_partitions
MEMBER = Recorded(is_member=True, sequence=1)


@pytest.fixture(scope="module")
def database(live: Platform) -> Iterator[Database]:
    found = Database(_settings(live).cassandra)
    yield found
    found.close()


@pytest.fixture(scope="module")
def audit(live: Platform, database: Database) -> Iterator[SelfAudit]:
    settings, registry = _settings(live), Registry(live.at.registry_url)
    states, waits = audited_states(database, settings.kafka.brokers, registry), threading.Event()
    built = build_self_audit(settings, database, registry, states, waits.wait)
    yield replace(built, pause_seconds=0.5, rng=random.Random(5))
    states.close()


def _settings(live: Platform) -> ApiSettings:
    return ApiSettings(
        kafka=Kafka(brokers=live.at.kafka),
        registry=SchemaRegistry(url=live.at.registry_url),
        cassandra=Cassandra(contact_points=live.at.cassandra_host, port=live.at.cassandra_port, keyspace="starling"),
        http=PublicHttp(host="127.0.0.1", port=1),
        clock=Clock.WALL,
        instance_id="test",
        tokens=SecretStr("unused=admin:default"),
        self_audit_users=100_000,
    )


@contextmanager
def flowing(send: Callable[[int], None]) -> Iterator[None]:
    """Call with growing numbers during the block. An error of a call is raised after it."""
    ended = threading.Event()

    def run() -> None:
        for number in itertools.takewhile(lambda _: not ended.is_set(), itertools.count()):
            send(number)

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        try:
            yield
        finally:
            ended.set()
        running.result()


@pytest.mark.long
def test_no_finding_while_events_flow_and_then_exactly_what_was_changed(
    live: Platform, audit: SelfAudit, database: Database
) -> None:
    name = f"Order {uuid.uuid4().hex}"
    key, brief = define(live, {"event": name}), define(live, {"event": name, "op": "eq", "value": 2, "within": "2s"})
    users = [f"{name}-{number}" for number in range(12)]
    for user in users:
        track(live, user, name)
    live.settle()
    with flowing(lambda number: track(live, users[number % 6], name)):  # they enter and leave `brief` meanwhile
        report = audit.run()
    assert report.findings == []
    assert report.agreed >= 6
    live.settle()
    planted = _plant(database, users, key)
    report = _until_compared(audit, users)
    ours = {digest_of((WORKSPACE, user)) for user in users}
    assert {(found.user, found.difference) for found in report.findings if found.user in ours} == planted
    assert [found for found in report.findings if found.user not in ours] == []
    assert brief not in {difference.segment_key for _, difference in planted}


def _plant(database: Database, users: list[str], key: str) -> set[tuple[str, Difference]]:
    """Change rows of three users directly; return what the audit has to find."""
    exited, gone, ghost = users[7], users[8], f"{users[9]}-ghost"
    where = (*user_partition(WORKSPACE, exited, PARTITIONS), exited, key)
    database.write(
        "UPDATE {ks}.user_memberships SET change = {{status: 'EXITED', sequence: 2, effective_at_ms: 1, segment_version: 1}} "
        "WHERE workspace = ? AND source_partition = ? AND bucket = ? AND user_id = ? AND segment_key = ?",
        where,
    )
    database.write(
        "DELETE FROM {ks}.segment_members WHERE workspace = ? AND segment_key = ? AND bucket = ? AND user_id = ?",
        (WORKSPACE, key, member_bucket(gone), gone),
    )
    database.write(
        "INSERT INTO {ks}.segment_members (workspace, segment_key, bucket, user_id, entered_at_ms, sequence) "
        "VALUES (?, ?, ?, ?, 1, 1)",
        (WORKSPACE, key, member_bucket(ghost), ghost),
    )
    users.append(ghost)
    return {
        (digest_of((WORKSPACE, exited)), Difference(Source.USER_MEMBERSHIPS, key, MEMBER, Recorded(is_member=False, sequence=2))),
        (digest_of((WORKSPACE, gone)), Difference(Source.SEGMENT_MEMBERS, key, MEMBER, None)),
        (digest_of((WORKSPACE, ghost)), Difference(Source.SEGMENT_MEMBERS, key, None, MEMBER)),
    }


def _until_compared(audit: SelfAudit, users: list[str]) -> Report:
    """Repeat runs until one has skipped no user: a partition that is being flushed, or a due timer, is skipped."""
    for _ in range(20):
        report = audit.run()
        if not report.skipped:
            break
    assert (report.skipped, report.agreed >= len(users) - 3) == (0, True)
    return report
