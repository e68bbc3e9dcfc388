"""The job `profiles` as a process, on a real broker and registry."""

import json
import random
import shutil
import signal
import struct
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from starling_common.values import record_key
from starling_spark.jobs.profiles.job import STEP
from tests.integration.spark.instance import Instance, wait_for
from tests.unit.spark.evaluator import differences

DAY_MS = 86_400_000
START_MS = 1_700_000_000_000
SPENT_30D = {"event": "Order Completed", "measure": {"sum": "revenue"}, "within": "30d"}
ORDERS = {"event": "Order Completed"}
UNKNOWN_SCHEMA_ID = 999_999_999


@pytest.mark.long
def test_the_life_of_computed_traits(instance: Instance) -> None:
    """One process, step by step: each start of Spark costs more than all that happens here."""
    _without_a_definition_nothing_is_published_and_nothing_lags(instance)
    _definitions_count_history(instance)
    _bad_records_are_dead_letters_and_other_writers_are_read(instance)
    _an_event_that_makes_the_fold_raise_is_a_dead_letter(instance)
    _a_late_event_corrects_and_the_clock_ends_windows(instance)
    _definitions_may_come_and_change_at_any_time(instance)
    _values_arrive_while_a_new_trait_reads_the_history(instance)
    _records_match_the_contract(instance)
    assert instance.stop() == 0


LATE_PYTHON = f"""#!/bin/sh
case "$*" in
*driver_worker*) test -e "$0.late" || {{ touch "$0.late"; sleep 11; }} ;;
esac
exec {sys.executable} "$@"
"""


@pytest.mark.long
def test_a_python_worker_that_starts_too_late_does_not_end_the_process(instance: Instance, tmp_path: Path) -> None:
    """Spark waits 10 s for it; a busy machine can take longer to start Python."""
    python = tmp_path / "python"
    python.write_text(LATE_PYTHON)
    python.chmod(0o755)
    instance.event("ann", START_MS, revenue=10)
    instance.define("spent", SPENT_30D)
    instance.start(PYSPARK_PYTHON=str(python))
    instance.settle()
    assert instance.values() == {("ann", "spent"): 10}
    assert instance.log.read_text().count("python_worker_late") == 1
    assert instance.stop() == 0


def _without_a_definition_nothing_is_published_and_nothing_lags(instance: Instance) -> None:
    instance.event("ann", START_MS, revenue=10, sku="a")
    instance.event("bob", START_MS + DAY_MS, revenue=5)
    instance.send("events", record_key("w", "ann"), b"passed by unread")
    # Every event of this user makes the fold raise, from here on.
    instance.start(STARLING_FAILPOINT="raise_in_fold:w/poison", STARLING_PROFILES_SEEDED_USERS="100")
    wait_for(instance.is_ready, 120, instance.log_tail)
    instance.settle()
    assert instance.read("aggregates") == []
    assert instance.read("dead_letters") == []


def _definitions_count_history(instance: Instance) -> None:
    instance.define("spent", SPENT_30D)
    instance.define("orders", ORDERS)
    instance.settle()
    assert instance.values() == {("ann", "spent"): 10, ("ann", "orders"): 1, ("bob", "spent"): 5, ("bob", "orders"): 1}
    assert [letter.record["value"] for letter in instance.read("dead_letters")] == [b"passed by unread"]
    instance.event("ann", START_MS + 2 * DAY_MS, revenue=2.5, sku="a")
    instance.settle()
    assert len(instance.read("aggregates")) == 4 + 2
    assert (instance.values()[("ann", "spent")], instance.values()[("ann", "orders")]) == (12.5, 2)


def _bad_records_are_dead_letters_and_other_writers_are_read(instance: Instance) -> None:
    key, topic = record_key("w", "cid"), instance.topics["events"]
    newer_id = _register_a_newer_writer(instance)
    good = instance._codecs["events"].encode(instance.event_record("cid", START_MS, "Order Completed", {"revenue": 1}))
    newer = struct.pack(">bI", 0, newer_id) + good[5:] + b"\x02\x04eu"
    unknown = struct.pack(">bI", 0, UNKNOWN_SCHEMA_ID) + good[5:]
    for value in (good, newer, good[:-4], unknown, newer, good):
        instance.send("events", key, value)
    instance.settle()
    assert (instance.values()[("cid", "orders")], instance.values()[("cid", "spent")]) == (4, 4)
    letters = {(one.record["code"], one.record["value"]) for one in instance.read("dead_letters")[1:]}
    assert letters == {("broken_avro", good[:-4]), ("unknown_schema", unknown)}
    assert all(one.record["headers"] == {"correlation_id": b"c-header"} for one in instance.read("dead_letters"))
    assert {one.record["origin_topic"] for one in instance.read("dead_letters")} == {topic}
    assert instance.metric('starling_profiles_rows_total{outcome="refused"}') == 3
    assert instance.metric('starling_spark_query_batch_seconds_count{query="profiles"}') > 0
    assert instance.metric('starling_spark_query_state_rows{query="profiles"}') > 0


def _an_event_that_makes_the_fold_raise_is_a_dead_letter(instance: Instance) -> None:
    before = instance.values()
    for user in ("dora", "poison", "dora"):
        instance.event(user, START_MS, revenue=1)
    instance.settle()
    assert instance.values() == before | {("dora", "orders"): 2, ("dora", "spent"): 2}
    letter = instance.read("dead_letters")[-1]
    assert (letter.record["code"], letter.record["origin_topic"], letter.key) == ("poison", "(fold)", b"w/poison")
    assert letter.record["message"].startswith("ValueError: failpoint fold (stack ")
    assert instance.metric('starling_spark_query_refused_total{code="poison",query="profiles"}') == 1


def _register_a_newer_writer(instance: Instance) -> int:
    """The schema of a writer that is one version ahead: a field more, at the end."""
    subject = f"{instance.topics['events']}-value"
    with SchemaRegistryClient({"url": instance.registry_url}) as client:
        document = json.loads(client.get_latest_version(subject).schema.schema_str or "")
        document["fields"].append({"name": "region", "type": ["null", "string"], "default": None})
        return int(client.register_schema(subject, Schema(json.dumps(document), "AVRO")))


def _a_late_event_corrects_and_the_clock_ends_windows(instance: Instance) -> None:
    instance.advance(START_MS + 29 * DAY_MS)
    instance.settle()
    instance.event("bob", START_MS + DAY_MS + 5, revenue=7)
    instance.settle()
    assert instance.values()[("bob", "spent")] == 12
    instance.advance(START_MS + 31 * DAY_MS)
    instance.settle()
    values = instance.values()
    assert (values[("ann", "spent")], values[("bob", "spent")], values[("cid", "spent")]) == (2.5, 7, None)
    assert (values[("ann", "orders")], values[("bob", "orders")], values[("cid", "orders")]) == (2, 2, 4)


def _definitions_may_come_and_change_at_any_time(instance: Instance) -> None:
    before = max(one.record["received_at"] for one in instance.read("aggregates"))
    instance.define("skus", {"event": "*", "measure": {"distinct": "sku"}})
    instance.define("orders", {"event": "Order Completed", "where": {"property": "revenue", "op": "gte", "value": 6}}, 2, "REVISED")
    instance.event("ann", START_MS + 31 * DAY_MS, revenue=100, sku="b")
    instance.settle()
    values = instance.values()
    assert (values[("ann", "skus")], values.get(("bob", "skus"))) == (2, None)
    assert (values[("ann", "orders")], values[("bob", "orders")], values[("cid", "orders")]) == (2, 1, 0)
    assert values[("ann", "spent")] == 102.5
    # An unchanged trait is not counted again: ann's earlier sums (10, 12.5) are not published.
    published = [one.record for one in instance.read("aggregates") if one.record["received_at"] > before]
    assert {one["value"] for one in published if (one["user_id"], one["trait_key"]) == ("ann", "spent")} <= {"2.5", "102.5"}
    assert sum(one.record["code"] != "poison" for one in instance.read("dead_letters")) == 3
    assert instance.metric("starling_profiles_definitions") == 3
    assert len(list((instance.directory / "checkpoints" / "profiles").iterdir())) == 1


def _values_arrive_while_a_new_trait_reads_the_history(instance: Instance) -> None:
    """The live query goes on while the history is read: each event of another trait gives a value."""
    before_ms = START_MS + 31 * DAY_MS
    users = [f"u{number}" for number in range(4_000)]  # forty files of 100 users, each a micro-batch
    for number, user in enumerate(users):
        instance.event(user, before_ms, "Page Viewed", sku=f"s{number % 3}")
    instance.settle()
    kept = {pair: value for pair, value in instance.values().items() if pair[1] in ("spent", "orders")}
    instance.define("views", {"event": "Page Viewed"})
    arrived = 0
    while sum(key == "views" for _, key in instance.values()) < len(users):
        arrived += 1
        instance.event("eve", before_ms, revenue=10)
        wait_for(partial(_has, instance, ("eve", "orders"), arrived), 200, instance.log_tail)
    assert arrived > 2
    instance.settle()
    views = {(user, "views"): 1 for user in users}
    new = {("eve", "orders"): arrived, ("eve", "spent"): 10.0 * arrived}
    found = {pair: value for pair, value in instance.values().items() if pair[1] in ("spent", "orders", "views")}
    assert found == kept | views | new
    assert instance.metric("starling_profiles_definitions") == 4
    assert len(list((instance.directory / "checkpoints" / "profiles").iterdir())) == 1


def _without_nulls(values: Mapping[tuple[str, str], Any]) -> dict[tuple[str, str], Any]:
    return {pair: value for pair, value in values.items() if value is not None}


def _has(instance: Instance, pair: tuple[str, str], value: Any) -> bool:
    return bool(instance.values().get(pair) == value)


def _records_match_the_contract(instance: Instance) -> None:
    homes = {message.key(): message.partition() for message in instance.messages("events")}
    published = instance.read("aggregates")
    assert {one.key: one.partition for one in published}.items() <= homes.items()
    last: dict[bytes, int] = {}
    for one in published:
        assert one.timestamp_ms == one.record["received_at"] // 1000
        assert one.headers["produced_by"] == b"starling-profiles"
        assert one.headers["correlation_id"].decode() == one.record["correlation_id"] != ""
        assert one.record["received_at"] > last.get(one.key, 0)
        last[one.key] = one.record["received_at"]


MIXED: Mapping[str, Mapping[str, Any]] = {
    "spent": SPENT_30D,
    "orders": ORDERS,
    "typical": {"event": "Order Completed", "measure": {"percentile": "revenue", "q": 0.9}, "within": "365d"},
    "favourite": {"event": "Order *", "measure": {"most_frequent": "sku"}, "between_ago": ["60d", "5d"]},
    "returned": {"measure": {"ratio": {"of": {"event": "Order Refunded"}, "to": {"event": "Order Completed"}}}},
    "days": {"event": "*", "measure": {"days": True}, "calendar": "last_month"},
    "latest": {
        "event": "*",
        "where": {"property": "revenue", "op": "gte", "value": {"trait": "limit"}},
        "measure": {"last": "sku"},
    },
}


@pytest.mark.long
def test_killed_amid_late_events_and_a_change_it_ends_as_if_all_had_come_at_once(instance: Instance) -> None:
    chance = random.Random(11)
    for key, document in MIXED.items():
        instance.define(key, document if key != "spent" else ORDERS)
    events: list[tuple[str, int, str, dict[str, Any]]] = []

    def more(count: int) -> None:
        for _ in range(count):
            time_ms = START_MS + (len(events) // 3 - chance.choice([0, 0, 5])) * DAY_MS + len(events)
            properties: dict[str, Any] = {"revenue": chance.randrange(1, 50), "sku": chance.choice("abc")}
            events.append((f"u{chance.randrange(9)}", time_ms, chance.choice(["Order Completed", "Order Refunded"]), properties))
            user, _, name, _ = events[-1]
            instance.event(user, time_ms, name, **properties)

    more(60)
    instance.start()
    instance.settle()
    more(60)
    instance.define("spent", SPENT_30D, 2, "REVISED")
    time.sleep(chance.random())  # sleep: a random instant of the kill
    instance.kill()
    more(60)
    instance.start()
    until_ms = START_MS + 70 * DAY_MS
    instance.advance(until_ms)
    instance.settle()
    assert differences(instance.values(), MIXED, events, until_ms) == []


@pytest.mark.long
def test_killed_at_every_point_of_a_step_no_value_is_missing_or_wrong(instance: Instance) -> None:
    """Each start goes on with the step to new definitions that the kill before has interrupted."""
    chance = random.Random(5)
    documents = dict(MIXED)
    events: list[tuple[str, int, str, dict[str, Any]]] = []

    def more(count: int) -> None:
        for _ in range(count):
            time_ms = START_MS + (len(events) // 3 - chance.choice([0, 0, 5])) * DAY_MS + len(events)
            properties: dict[str, Any] = {"revenue": chance.randrange(1, 50), "sku": chance.choice("abc")}
            name = chance.choice(["Order Completed", "Order Refunded"])
            events.append((f"u{chance.randrange(9)}", time_ms, name, properties))
            instance.event(events[-1][0], time_ms, name, **properties)

    for key, document in documents.items():
        instance.define(key, document)
    more(60)
    for point in STEP:
        instance.start(STARLING_FAILPOINT=point)
        if point == STEP[0]:
            wait_for(instance.is_ready, 200, instance.log_tail)
            instance.settle()
            documents |= {"recent": {"event": "Order *", "measure": {"sum": "revenue"}, "within": "12d"}, "spent": ORDERS}
            instance.define("recent", documents["recent"])
            instance.define("spent", documents["spent"], 2, "REVISED")
            instance.define("days", documents.pop("days"), 1, "ARCHIVED")
        more(20)
        assert instance.died(300) == -signal.SIGKILL
        more(20)
        if point == "bootstrap_seeded":
            note = instance.history_note()
            assert (note.total, note.done <= note.total) == (60, True)
    instance.start()
    until_ms = START_MS + 130 * DAY_MS
    instance.advance(until_ms)
    instance.settle()
    assert differences(instance.values(), documents, events, until_ms) == []
    assert instance.values()["u0", "days"] is None
    assert instance.history_note().total == 0


@pytest.mark.long
def test_values_from_deleted_records_are_withdrawn_only_without_a_checkpoint(instance: Instance, tmp_path: Path) -> None:
    """Stream time does not go back. A new trait counts what the topic has, the others keep what they counted."""
    until_ms = START_MS + 29 * DAY_MS
    instance.define("spent", SPENT_30D)
    instance.define("orders", ORDERS)
    instance.start()
    wait_for(instance.is_ready, 120, instance.log_tail)
    for user in ("ann", "bob"):
        instance.event(user, START_MS, revenue=10)
    instance.advance(until_ms)
    instance.settle()
    for user in ("ann", "bob"):
        instance.event(user, START_MS + 1, revenue=5)
    instance.settle()
    assert instance.values() == {(user, key): value for user in ("ann", "bob") for key, value in (("spent", 15), ("orders", 2))}
    before = len(instance.read("aggregates"))
    instance.delete_records()
    instance.event("bob", START_MS + DAY_MS, revenue=1)
    instance.event("ann", START_MS + DAY_MS, "Page Viewed")
    instance.define("events", {"event": "*"})
    instance.settle()
    counted = {("ann", "spent"): 15, ("ann", "orders"): 2, ("bob", "spent"): 16, ("bob", "orders"): 3}
    assert instance.values() == counted | {("ann", "events"): 1, ("bob", "events"): 1}
    assert instance.stop() == 0
    before = len(instance.read("aggregates"))
    shutil.rmtree(tmp_path / "checkpoints")
    instance.start()
    left = {("bob", "spent"): 1, ("bob", "orders"): 1, ("ann", "events"): 1, ("bob", "events"): 1}
    # The offsets of the group are those of the lost checkpoint, so they do not show when all is read again.
    wait_for(lambda: _without_nulls(instance.values()) == left or None, 200, instance.log_tail)
    instance.settle()
    again = [one.record["as_of"] for one in instance.read("aggregates")[before:]]
    assert again
    assert set(again) == {until_ms}
    # What the first micro-batch alone reads is no obstacle to later ones, or to a restart.
    for total in (2, 3):
        instance.event("bob", START_MS + 2 * DAY_MS, revenue=1)
        instance.settle()
        assert instance.values()[("bob", "orders")] == total
        assert instance.stop() == 0
        instance.start()
    instance.settle()
    assert len(instance.read("aggregates")) == before + len(again) + 6


@pytest.mark.long
def test_with_the_wall_clock_a_window_ends_without_an_event(instance: Instance) -> None:
    instance.define("recent", {"event": "Order Completed", "within": "20s"})
    instance.start(STARLING_CLOCK="wall")
    instance.settle()
    instance.event("ann", time.time_ns() // 1_000_000)
    wait_for(lambda: instance.values() == {("ann", "recent"): 1} or None, 200, instance.log_tail)
    # Heartbeats end the window, wherever the step is.
    instance.define("ever", ORDERS)
    wait_for(lambda: instance.values() == {("ann", "recent"): 0, ("ann", "ever"): 1} or None, 200, instance.log_tail)
    assert instance.stop() == 0
