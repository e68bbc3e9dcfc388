"""The real projector between the real broker and the real database."""

import json
import random
import uuid
from collections import Counter
from contextlib import closing
from typing import Any

import httpx
import pytest
from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

from starling_common.cassandra.database import Database
from starling_common.cassandra.read_models import user_partition
from starling_common.cassandra.sessions import create_tables, open_session
from starling_common.kafka.clients import consumer_config, offsets, producer_config
from starling_common.kafka.topics import BEHAVIOUR, LIST_DEFINITIONS, MEMBERSHIP, PROGRESS, load_catalogue
from starling_common.kafka.topics import PROFILE as PROFILE_TOPIC
from starling_common.settings import Cassandra
from starling_common.testing import eventually, own_keyspace
from starling_projector.source import Source
from tests.conftest import Stack
from tests.integration.projector.conftest import Start
from tests.integration.projector.feed import Log
from tests.integration.projector.gate import Gate
from tests.integration.projector.members import COUNTS, members, totals

DAYS = "SELECT day, entered, exited FROM {ks}.segment_days WHERE workspace = ? AND segment_key = ?"
CAMPAIGN_DAYS = "SELECT day, version, counts FROM {ks}.campaign_days WHERE workspace = ? AND campaign = ?"
CAMPAIGN_ARMS = "SELECT held_out, counts, value FROM {ks}.campaign_arms WHERE workspace = ? AND campaign = ?"
DEFINITIONS = "SELECT * FROM {ks}.definitions WHERE workspace = ? AND kind = 'segment'"
VERSIONS = "SELECT * FROM {ks}.definition_versions WHERE workspace = ? AND kind = 'segment' AND key = 'vip'"
USER = "workspace = ? AND source_partition = ? AND bucket = ? AND user_id = ?"
PROFILE = f"SELECT profile.traits AS traits FROM {{ks}}.user_profiles WHERE {USER}"  # noqa: S608 - constants
_MEMBERSHIP = "SELECT change.status AS status, change.sequence AS sequence FROM {ks}.user_memberships"
HISTORY = f"SELECT TTL(event) AS seconds FROM {{ks}}.user_history WHERE {USER}"  # noqa: S608 - constants
ONE_USER = f"{_MEMBERSHIP} WHERE {USER} AND segment_key = ?"
OLDER_PROFILE = (
    "INSERT INTO {ks}.user_profiles (workspace, source_partition, bucket, user_id, profile) "
    "VALUES (?, ?, ?, ?, {{traits: 'older'}}) USING TIMESTAMP 9000000000"
)
OLDER_MEMBERSHIP = (
    "INSERT INTO {ks}.user_memberships (workspace, source_partition, bucket, user_id, segment_key, change) "
    "VALUES (?, ?, ?, ?, 'vip', {{status: 'EXITED', sequence: 8}}) USING TIMESTAMP 9000000000"
)
OLDER_COUNT = (
    "INSERT INTO {ks}.segment_counts (workspace, segment_key, source_partition, entered, exited, counted_offset) "
    "VALUES (?, 'vip', ?, 5, 4, 8999999999) USING TIMESTAMP 9000000000"
)
DAY_MS = 86_400_000
PARTITIONS = load_catalogue().profile_partitions


def ada(log: Log) -> tuple[object, ...]:
    """The key of the user's rows."""
    return (*user_partition(log.workspace, "ada", PARTITIONS), "ada")


def by_day(tables: Database, log: Log, segment: str) -> dict[int, tuple[int, int]]:
    days: dict[int, tuple[int, int]] = {}
    for row in tables.read(DAYS, (log.workspace, segment)):
        entered, exited = days.get(row["day"], (0, 0))
        days[row["day"]] = (entered + row["entered"], exited + row["exited"])
    return days


def write_history(log: Log, segment: str, seed: int) -> dict[str, int]:
    """Entries and exits of 40 users, each in its own order, mixed with one another. Gives each user's last sequence."""
    random_order = random.Random(seed)
    last = {f"user-{number}": random_order.randint(1, 6) for number in range(40)}
    written = dict.fromkeys(last, 0)
    while waiting := [user for user in last if written[user] < last[user]]:
        user = random_order.choice(waiting)
        written[user] += 1
        log.change(user, segment, written[user], effective_at=written[user] * DAY_MS)
    return last


def expected(last: dict[str, int]) -> tuple[dict[str, int], tuple[int, int]]:
    entered, exited = sum((n + 1) // 2 for n in last.values()), sum(n // 2 for n in last.values())
    return {user: sequence for user, sequence in last.items() if sequence % 2}, (entered, exited)


@pytest.mark.long
def test_the_same_records_twice_by_two_projectors_and_a_crash_count_once(log: Log, start: Start, tables: Database) -> None:
    last = write_history(log, "vip", seed=7)
    all_members, counts = expected(last)
    group = f"test-{uuid.uuid4().hex}"
    with start(group, ready=False) as first:
        eventually(lambda: tables.read(COUNTS, (log.workspace, "vip")))
        first.kill()
    with start(group) as second:
        eventually(lambda: totals(tables, log, "vip") == counts and members(tables, log, "vip") == all_members)
        assert second.stop() == 0
    with start():  # a new group: every record once more, from the first
        log.change("latecomer", "vip", 1)
        eventually(lambda: "latecomer" in members(tables, log, "vip"))
        eventually(lambda: totals(tables, log, "vip") == (counts[0] + 1, counts[1]))
        eventually(lambda: 0 in by_day(tables, log, "vip"))
    assert members(tables, log, "vip") == {**all_members, "latecomer": 1}
    days = {n: sum(one >= n for one in last.values()) for n in range(1, 7)}
    assert by_day(tables, log, "vip") == {0: (1, 0)} | {n: (many, 0) if n % 2 else (0, many) for n, many in days.items()}


def test_an_older_change_that_comes_later_changes_nothing(log: Log, start: Start, tables: Database) -> None:
    for sequence in (3, 2, 1):
        log.change("ada", "vip", sequence)
    log.change("ada", "marker", 1)
    with start():
        eventually(lambda: tables.read(ONE_USER, (*ada(log), "marker")))
        assert members(tables, log, "vip") == {"ada": 3}
        assert tables.read(ONE_USER, (*ada(log), "vip")) == [{"status": "ENTERED", "sequence": 3}]
        log.change("ada", "vip", 4)
        eventually(lambda: not members(tables, log, "vip"))


def test_profiles_and_definitions_show_their_newest_state(log: Log, start: Start, tables: Database) -> None:
    for plan in ("free", "pro"):
        log.profile("ada", {"plan": plan})
    for version, action in ((1, "DEFINED"), (2, "REVISED"), (2, "ARCHIVED")):
        log.write("segments.definitions", "vip", _definition(log, version, action))
    with start():
        eventually(lambda: [row for row in tables.read(PROFILE, ada(log)) if "pro" in row["traits"]])
        eventually(lambda: [row for row in tables.read(DEFINITIONS, (log.workspace,)) if row["status"] == "archived"])
    (profile,) = tables.read(PROFILE, ada(log))
    found = tables.read(DEFINITIONS, (log.workspace,))
    assert json.loads(profile["traits"]) == {"plan": "pro"}
    assert (found[0]["version"], found[0]["status"], found[0]["created_at_micros"]) == (2, "archived", 101)
    history = tables.read(VERSIONS, (log.workspace,))
    assert [(row["version"], row["action"]) for row in history] == [(1, "DEFINED"), (2, "REVISED"), (2, "ARCHIVED")]


def test_bad_records_go_to_the_dead_letters_and_the_rest_goes_on(stack: Stack, log: Log, start: Start, tables: Database) -> None:
    mark = uuid.uuid4().hex.encode()
    bad = {
        b"not framed " + mark: "bad_framing",
        b"\x00\x7f\xff\xff\xff" + mark: "unknown_schema",
        log.encode("segments.membership", log.membership("ada", "vip", 1))[:5] + b"\xff" + mark: "broken_avro",
        log.encode("segments.membership", {**log.membership("", "vip", 1), "event_id": mark.decode()}): "bad_identifier",
    }
    for value in bad:
        log.write_raw("segments.membership", "ada", value)
    log.change("ada", "vip", 1)
    with start():
        eventually(lambda: members(tables, log, "vip") == {"ada": 1})
    letters = {letter["value"]: letter for letter in _dead_letters(stack, log) if mark in letter["value"]}
    assert {value: letters[value]["code"] for value in bad} == bad
    assert {(one["stage"], one["origin_topic"], one["key"]) for one in letters.values()} == {
        ("projector", "segments.membership", f"{log.workspace}/ada".encode())
    }


@pytest.mark.parametrize(
    "point", ["decode", pytest.param("rows", marks=pytest.mark.long), pytest.param("count", marks=pytest.mark.long)]
)
def test_a_record_that_makes_the_code_raise_is_a_dead_letter_and_stops_no_other(
    stack: Stack, log: Log, start: Start, tables: Database, point: str
) -> None:
    poison = f"poison-{uuid.uuid4().hex}"
    users = [f"user-{number}" for number in range(20)]
    for number, user in enumerate(users):
        log.change(user, "vip", 1)
        if number == 7:
            log.change(user, poison, 1)
    with start(failpoint=f"raise_in_{point}:{poison}") as service:
        eventually(lambda: members(tables, log, "vip") == dict.fromkeys(users, 1))
        eventually(lambda: totals(tables, log, "vip") == (20, 0))
        assert (members(tables, log, poison), totals(tables, log, poison)) == ({}, (0, 0))
        metrics = httpx.get(f"{service.url}/metrics", trust_env=False).text
        assert 'starling_projector_refused_total{code="poison"}' in metrics
        assert service.stop() == 0
    [letter] = [letter for letter in _dead_letters(stack, log) if poison.encode() in letter["value"]]
    assert (letter["code"], letter["message"].startswith(f"ValueError: failpoint {point} (stack ")) == ("poison", True)


def test_offsets_pass_the_markers_that_transactions_leave(stack: Stack, log: Log, start: Start, tables: Database) -> None:
    """Offsets alone then state whether the projector has caught up, and aborted records are never projected."""
    producer = Producer(producer_config(stack.brokers, **{"transactional.id": f"test-{uuid.uuid4().hex}"}))
    producer.init_transactions(30)
    for user, ends in (("ada", producer.commit_transaction), ("bob", producer.abort_transaction)):
        producer.begin_transaction()
        key = f"{log.workspace}/{user}".encode()
        producer.produce("segments.membership", log.encode("segments.membership", log.membership(user, "vip", 1)), key)
        producer.flush(30)
        ends(30)
    group = f"test-{uuid.uuid4().hex}"
    with start(group):
        eventually(lambda: members(tables, log, "vip"))
        eventually(lambda: _is_caught_up(stack, group))
        assert members(tables, log, "vip") == {"ada": 1}


def _is_caught_up(stack: Stack, group: str) -> bool:
    consumer = Consumer(consumer_config(stack.brokers, group))
    try:
        parts = [TopicPartition("segments.membership", number) for number in range(PARTITIONS)]
        ends = [consumer.get_watermark_offsets(part, timeout=10) for part in parts]
        done = consumer.committed(parts, timeout=10)
        return all(end is not None and (end[1] == end[0] or part.offset == end[1]) for end, part in zip(ends, done, strict=True))
    finally:
        consumer.close()


def test_ends_lie_beyond_an_open_transaction(stack: Stack, log: Log) -> None:
    producer = Producer(producer_config(stack.brokers, **{"transactional.id": f"test-{uuid.uuid4().hex}"}))
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(MEMBERSHIP, log.encode(MEMBERSHIP, log.membership("ada", "vip", 1)), f"{log.workspace}/ada".encode())
    producer.flush(30)
    source, group = Source(stack.brokers, f"test-{uuid.uuid4().hex}", [MEMBERSHIP], 60.0), f"test-{uuid.uuid4().hex}"
    reader = Consumer(consumer_config(stack.brokers, group, **{"isolation.level": "read_uncommitted"}))
    source.start()
    try:
        parts = [TopicPartition(MEMBERSHIP, number) for number in range(PARTITIONS)]
        written = {part.partition: reader.get_watermark_offsets(part, timeout=30)[1] for part in parts}
        assert source.ends(MEMBERSHIP, range(PARTITIONS)) == written
        committed = offsets(source._consumer, [(MEMBERSHIP, number) for number in range(PARTITIONS)], OFFSET_END, 30)
        assert sum(committed.values()) < sum(written.values())
    finally:
        producer.abort_transaction(30)
        source.close()
        reader.close()


def test_progress_appears_after_the_changes_that_it_covers(log: Log, start: Start, tables: Database) -> None:
    name = f"{log.workspace}/vip"
    log.change("ada", "vip", 1)
    log.progress({"vip": 4}, stream_time_ms=5_000)
    with start():
        rows = eventually(lambda: _progress(tables, name))
        assert rows == {partition: 5_000 + partition for partition in range(PARTITIONS)}
        assert members(tables, log, "vip") == {"ada": 1}


def test_a_record_whose_value_the_database_refuses_is_a_dead_letter_and_stops_nothing(
    stack: Stack, log: Log, start: Start, tables: Database
) -> None:
    log.change("eve", "vip", -(2**63))  # the sequence is the timestamp of the row
    log.change("ada", "vip", 1)
    with start():
        eventually(lambda: members(tables, log, "vip") == {"ada": 1})
        letters = eventually(lambda: [one for one in _dead_letters(stack, log) if one["key"] == f"{log.workspace}/eve".encode()])
    assert [one["code"] for one in letters] == ["poison"]
    assert "Out of bound timestamp" in letters[0]["message"]


def test_progress_of_a_partition_that_the_feed_lacks_is_a_dead_letter_and_stops_nothing(
    stack: Stack, log: Log, start: Start, tables: Database
) -> None:
    bad = (-1, PARTITIONS, 2**31 - 1)
    for number in bad:
        record = {"recorded_at": 1, "partition": number, "stream_time": 1, "definitions": {f"{log.workspace}/bad": 1}}
        log.write("segments.progress", str(number), record)
    log.progress({"vip": 4}, stream_time_ms=5_000)
    with start():
        eventually(lambda: _progress(tables, f"{log.workspace}/vip"))
    letters = [one for one in _dead_letters(stack, log) if f"{log.workspace}/bad".encode() in one["value"]]
    assert [(one["code"], one["message"]) for one in letters] == [
        ("unknown_partition", f"segments.membership has no partition {number}") for number in bad
    ]


def _progress(tables: Database, name: str) -> dict[int, int] | None:
    rows = tables.read("SELECT * FROM {ks}.segmenter_progress WHERE id = 0")
    found = {row["source_partition"]: row["stream_time_ms"] for row in rows if (row["definitions"] or {}).get(name) == 4}
    return found if len(found) == PARTITIONS else None


def test_without_the_database_it_waits_and_reports_it(log: Log, start: Start, tables: Database, own_cassandra: Cassandra) -> None:
    with Gate("127.0.0.1", own_cassandra.port) as gate:
        through_gate = own_cassandra.model_copy(update={"contact_points": "127.0.0.1", "port": gate.port})
        with start(cassandra=through_gate) as service:
            log.change("ada", "vip", 1)
            eventually(lambda: members(tables, log, "vip") == {"ada": 1})
            gate.shut()
            log.change("bob", "vip", 1)
            eventually(lambda: not service.is_ready())
            answer = httpx.get(f"{service.url}/readyz", trust_env=False).json()
            assert "Cassandra" in answer["checks"]["stores"]
            assert members(tables, log, "vip") == {"ada": 1}
            gate.open()
            eventually(lambda: members(tables, log, "vip") == {"ada": 1, "bob": 1})
            eventually(service.is_ready)
            metrics = httpx.get(f"{service.url}/metrics", trust_env=False).text
            assert 'starling_projector_rows_total{table="segment_members"}' in metrics


def _definition(log: Log, version: int, action: str) -> dict[str, object]:
    return {
        "recorded_at": 100 + version + (action == "ARCHIVED"),
        "event_id": str(uuid.uuid4()),
        "workspace": log.workspace,
        "kind": "segment",
        "key": "vip",
        "version": version,
        "action": action,
        "document": "{}",
        "actor": "test",
        "correlation_id": "test",
    }


@pytest.mark.long
def test_events_are_kept_for_the_days_of_the_installation(log: Log, start: Start, tables: Database) -> None:
    log.event("ada", "Buy", "e-1", 1)
    with start(history_days=7):
        eventually(lambda: tables.read(HISTORY, ada(log)))
    (row,) = tables.read(HISTORY, ada(log))
    assert 6 * 86_400 < row["seconds"] <= 7 * 86_400


def test_without_history_events_are_committed_and_not_stored(stack: Stack, log: Log, start: Start, tables: Database) -> None:
    group = f"test-{uuid.uuid4().hex}"
    log.event("ada", "Buy", "e-1", 1)
    reader = Consumer(consumer_config(stack.brokers, f"{group}-events"))
    places = [(BEHAVIOUR, number) for number in range(PARTITIONS)]
    ends = offsets(reader, places, OFFSET_END, 10)
    with start(group, history_days=0):
        log.profile("ada", {"plan": "pro"})
        eventually(lambda: tables.read(PROFILE, ada(log)))
        eventually(
            lambda: all(
                one.offset >= ends[one.topic, one.partition] for one in _committed(reader, places) if ends[one.topic, one.partition]
            )
        )
    reader.close()
    assert tables.read(HISTORY, ada(log)) == []


def _committed(reader: Consumer, places: list[tuple[str, int]]) -> list[TopicPartition]:
    return reader.committed([TopicPartition(*place) for place in places], timeout=10)


def _dead_letters(stack: Stack, log: Log) -> list[dict[str, Any]]:
    codec = log.registry.codec("projector.dlq", "DeadLetter")
    consumer = Consumer(consumer_config(stack.brokers, f"test-{uuid.uuid4().hex}", **{"enable.partition.eof": True}))
    consumer.assign([TopicPartition("projector.dlq", 0, 0)])
    found: list[dict[str, Any]] = []
    try:
        while (message := consumer.poll(10)) is not None and message.error() is None:
            found.append(codec.decode(message.value() or b""))
    finally:
        consumer.close()
    return found


@pytest.mark.long
def test_an_offset_after_the_end_of_a_topic_is_not_ignored(log: Log, start: Start, tables: Database, stack: Stack) -> None:
    # As after the topic was created again, or a failover to a region with another copy of it.
    group = f"test-{uuid.uuid4().hex}"
    consumer = Consumer(consumer_config(stack.brokers, group, **{"isolation.level": "read_uncommitted"}))
    [(place, end)] = offsets(consumer, [(MEMBERSHIP, 0)], OFFSET_END, 10).items()
    consumer.commit(offsets=[TopicPartition(*place, end + 100_000)], asynchronous=False)
    log.change("ada", "vip", 1)
    with start(group, ready=False) as projector:
        eventually(lambda: "after the end" in _readiness(projector.url))
        assert "starling stage accept-loss projector" in _readiness(projector.url)
        assert members(tables, log, "vip") == {}
        consumer.commit(offsets=[TopicPartition(*place, 0)], asynchronous=False)  # as the command does, while the process waits
        eventually(lambda: members(tables, log, "vip") == {"ada": 1})
        assert projector.stop() == 0
    consumer.close()


def _readiness(url: str) -> str:
    try:
        return httpx.get(f"{url}/readyz", trust_env=False).text
    except httpx.TransportError:
        return ""


@pytest.mark.long
def test_records_of_a_topic_that_was_created_again_overwrite_older_rows(log: Log, start: Start, stack: Stack) -> None:
    # The tables contain rows of earlier topics of the same names, whose offsets were far greater.
    with own_keyspace(stack.cassandra) as cassandra, closing(Database(cassandra)) as tables:
        workspace = log.workspace
        for topic in (PROFILE_TOPIC, MEMBERSHIP, PROGRESS):
            tables.write("INSERT INTO {ks}.projected_topics (topic, incarnation, topic_id) VALUES (?, 0, 'earlier')", (topic,))
        tables.write(OLDER_PROFILE, ada(log))
        tables.write(OLDER_MEMBERSHIP, ada(log))
        for partition in range(PARTITIONS):
            tables.write(OLDER_COUNT, (workspace, partition))
        log.profile("ada", {"plan": "pro"})
        log.change("ada", "vip", 1)
        with start(cassandra=cassandra) as projector:
            eventually(lambda: tables.read(PROFILE, ada(log))[0]["traits"] == '{"plan": "pro"}')
            eventually(lambda: totals(tables, log, "vip") == (5 * PARTITIONS + 1, 4 * PARTITIONS))
            assert tables.read(ONE_USER, (*ada(log), "vip")) == [{"status": "ENTERED", "sequence": 1}]
            assert members(tables, log, "vip") == {"ada": 1}
            assert projector.stop() == 0
            assert "topic_created_again" in projector.log.read_text()
        log.change("ada", "vip", 2)
        with start(cassandra=cassandra) as again:  # the same topics: no further incarnation, and nothing is counted twice
            eventually(lambda: totals(tables, log, "vip") == (5 * PARTITIONS + 1, 4 * PARTITIONS + 1))
            assert members(tables, log, "vip") == {}
            assert again.stop() == 0
        newest = tables.read("SELECT incarnation FROM {ks}.projected_topics WHERE topic = ? LIMIT 1", (MEMBERSHIP,))
        assert newest == [{"incarnation": 1}]


def test_a_record_that_the_database_refuses_is_a_dead_letter_and_stops_no_other(
    stack: Stack, log: Log, start: Start, tables: Database
) -> None:
    kind = f"{uuid.uuid4().hex}-{'k' * 65_480}"  # with the workspace it is longer than the 65,535 bytes of a partition key
    users = [f"user-{number}" for number in range(20)]
    for number, user in enumerate(users):
        log.change(user, "vip", 1)
        if number == 7:
            log.write(LIST_DEFINITIONS, "vip", _definition(log, 1, "DEFINED") | {"kind": kind})
    with start() as service:
        eventually(lambda: members(tables, log, "vip") == dict.fromkeys(users, 1))
        eventually(lambda: totals(tables, log, "vip") == (20, 0))
        eventually(lambda: [letter for letter in _dead_letters(stack, log) if kind.encode() in letter["value"]])
        assert 'starling_projector_refused_total{code="poison"}' in httpx.get(f"{service.url}/metrics", trust_env=False).text
        eventually(service.is_ready)
        assert service.stop() == 0
    [letter] = [letter for letter in _dead_letters(stack, log) if kind.encode() in letter["value"]]
    assert (letter["code"], letter["origin_topic"]) == ("poison", LIST_DEFINITIONS)
    assert letter["message"].startswith("RowRefused: the database refuses a row of the record: ")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param("DROP TABLE {ks}.segment_members", marks=pytest.mark.long),
        pytest.param("ALTER TABLE {ks}.segment_members DROP sequence", marks=pytest.mark.long),
    ],
)
def test_a_database_without_a_table_or_column_delays_all_records_and_refuses_none(
    stack: Stack, log: Log, start: Start, change: str
) -> None:
    with (
        own_keyspace(stack.cassandra) as cassandra,
        closing(Database(cassandra)) as tables,
        start(cassandra=cassandra) as service,
    ):
        log.change("ada", "vip", 1)
        eventually(lambda: members(tables, log, "vip") == {"ada": 1})
        session = open_session(cassandra)
        session.execute(change.format(ks=cassandra.keyspace), timeout=60)
        for user in ("bob", "eve"):
            log.change(user, "vip", 1)
        eventually(lambda: "python -m starling_common.deploy" in _readiness(service.url))
        assert "database_misconfigured" in service.log.read_text()
        create_tables(session, cassandra)
        if "DROP TABLE" not in change:
            session.execute(f"ALTER TABLE {cassandra.keyspace}.segment_members ADD sequence bigint", timeout=60)
        session.cluster.shutdown()
        eventually(lambda: {"bob", "eve"} <= members(tables, log, "vip").keys())
        eventually(service.is_ready)
        assert service.stop() == 0
    assert [letter for letter in _dead_letters(stack, log) if log.workspace.encode() in letter["value"]] == []


@pytest.mark.long
def test_the_steps_of_messages_are_counted_once_although_the_projector_is_killed(log: Log, start: Start, tables: Database) -> None:
    """The counts equal those of the log, and stay so when another group reads the whole log once more."""
    random_order = random.Random(11)
    written: Counter[str] = Counter()
    arms: Counter[tuple[bool, str]] = Counter()

    def write(number: int) -> None:
        held_out, user = random_order.random() < 0.2, f"user-{number}"
        steps = ["HELD_OUT"] if held_out else ["REQUESTED", "SENT"]
        steps += ["CONVERTED"] * (random_order.random() < 0.5)
        for step in steps:
            log.message_step(user, step, held_out=held_out, value=0.25 if step == "CONVERTED" else None)
            written["HELD_OUT_CONVERTED" if held_out and step == "CONVERTED" else step] += 1
        arms[held_out, "PEOPLE"] += 1
        arms[held_out, "CONVERTED"] += "CONVERTED" in steps
        if number % 5 == 0:
            log.message_step(user, "DROPPED", reason="capped", variant=None, is_first=False)
            written["SUPPRESSED:capped"] += 1

    def days() -> Counter[str]:
        found: Counter[str] = Counter()
        for row in tables.read(CAMPAIGN_DAYS, (log.workspace, "win-back")):
            assert (row["day"], row["version"]) == (20_454, 1)
            found.update(row["counts"])
        return found

    group = f"test-{uuid.uuid4().hex}"
    for first in (0, 20):
        for number in range(first, first + 20):
            write(number)
        with start(group) as service:
            eventually(lambda first=first: sum(days().values()) > (0 if first == 0 else 30))  # type: ignore[misc]
            service.kill()
    with start(group) as service:
        eventually(lambda: days() == written)
        assert service.stop() == 0
    with start():  # a new group: every record once more, from the first
        write(40)
        eventually(lambda: days() == written)
    found: Counter[tuple[bool, str]] = Counter()
    value = 0.0
    for row in tables.read(CAMPAIGN_ARMS, (log.workspace, "win-back")):
        found.update({(row["held_out"], name): count for name, count in row["counts"].items()})
        value += row["value"]
    assert found == +arms
    assert value == 0.25 * (arms[False, "CONVERTED"] + arms[True, "CONVERTED"])
