"""Preview, diff, explain and export over HTTP, on the real Cassandra, into which the segmenter's states are put by hand."""

import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from starling_common.cassandra.database import Database
from starling_common.kafka.clients import consumer_config, topic_ids
from starling_common.kafka.topics import load_catalogue
from starling_common.partitioning import partition_of
from starling_common.testing import eventually
from starling_common.values import plan_name, record_key
from starling_common.wire import Registry
from starling_segments import LEAVES, Evaluator, Known, UserState, compile_plan, encode_state, parse_segment
from starling_stream.model.backing_store import Checkpoint, PartitionCopy, StageLayout, StateWrite
from starling_stream.model.meta import TaskMeta, encode_meta
from starling_stream.model.rows import NEVER, row_of
from starling_stream.state.cassandra import CassandraBackingStore
from tests.conftest import Stack
from tests.contract.api.answers import is_problem
from tests.contract.api.conftest import Client
from tests.integration.projector.feed import Log

CHANGELOG = "segmenter-state-changelog"
PARTITIONS = load_catalogue().profile_partitions
BUCKETS = 2
NOW_MS = int(time.time() * 1000)
HOUR_MS = 3_600_000
VIP = {"event": "Buy", "op": "gte", "value": 2, "within": "7d"}
_OF_MANY = plan_name([("other/workspaces", 1, False)], LEAVES)
"""What is in force has segments of other workspaces, too: these go by what was reported."""


class Tier:
    """Where the segmenter would keep its states."""

    def __init__(self, stack: Stack, database: Database, workspace: str) -> None:
        self._backing = CassandraBackingStore(database, BUCKETS)
        self._log = topic_ids(stack.brokers, [CHANGELOG])[CHANGELOG][0]
        self._workspace = workspace
        self._ends = _ends(stack)
        self._backing.freeze(StageLayout("segmenter", PARTITIONS, BUCKETS, {CHANGELOG: self._log}))

    def keep(self, states: Mapping[str, UserState]) -> None:
        for user, state in states.items():
            key = record_key(self._workspace, user)
            write = StateWrite(key, row_of(1, NEVER + encode_state(state)), 1, None, None)
            self._backing.write(PartitionCopy(self._log, partition_of(key, PARTITIONS), 0), [write])
        meta = encode_meta(TaskMeta(1, NOW_MS, _OF_MANY))
        for number, end in self._ends.items():
            self._backing.save_checkpoint(PartitionCopy(self._log, number, 0), Checkpoint(0, end, meta, 0))


def _ends(stack: Stack) -> dict[int, int]:
    consumer = Consumer(consumer_config(stack.brokers, "test-ends"))
    try:
        return {
            number: consumer.get_watermark_offsets(TopicPartition(CHANGELOG, number), timeout=30)[1] for number in range(PARTITIONS)
        }
    finally:
        consumer.close()


@pytest.fixture
def log(stack: Stack, client: Client) -> Log:
    return Log(stack.brokers, Registry(stack.registry_url), client.workspace)


@pytest.fixture
def tier(stack: Stack, database: Database, client: Client) -> Tier:
    return Tier(stack, database, client.workspace)


def bought(times: Mapping[str, int]) -> dict[str, UserState]:
    """The states of users who bought so often, an hour ago."""
    evaluator = Evaluator(compile_plan([parse_segment({"key": "vip", "name": "VIP", "where": VIP}, Known())]))
    states = {}
    for user, count in times.items():
        states[user] = UserState(user_id=user)
        for _ in range(count):
            event = SimpleNamespace(name="Buy", time_ms=NOW_MS - HOUR_MS, properties={}, context={})
            evaluator.on_event(states[user], event, NOW_MS - HOUR_MS)
    return states


def ask(client: Client, path: str, where: object) -> dict[str, Any]:
    answer = client.call("POST", path, {"where": where}, role="viewer")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_previews_and_explanations_use_states_and_events(client: Client, log: Log, tier: Tier) -> None:
    made = client.call("POST", "/v1/segments", {"key": "vip", "name": "VIP", "where": VIP})
    assert made.status_code == 201
    assert is_problem(client.call("GET", "/v1/users/a%2Fb/explain/vip"), 404, "unknown_user")
    tier.keep(bought({"a/b": 3, "bob": 2, "cleo": 1}))
    assert is_problem(client.call("GET", "/v1/users/a%2Fb/explain/vip"), 503, "backfilling")
    log.progress({"vip": 1}, NOW_MS)
    explained = eventually(lambda: _explained(client, "a%2Fb"))
    assert (explained["member"], explained["tree"]["observed"], explained["tree"]["children"]) == (True, 3, [])
    assert explained["tree"]["next_change_at"] > explained["as_of"]
    found = ask(client, "/v1/segments/preview", {"event": "Buy", "op": "gte", "value": 3, "within": "7d"})
    assert (found["estimate"], found["high"], found["sample"], found["users"]) == (1, 1, ["a/b"], 3)
    assert (found["exact"], found["limits"]) == (True, [])
    changed = ask(client, "/v1/segments/vip/diff", {"event": "Buy", "op": "lte", "value": 2, "within": "7d"})
    assert [changed[side]["sample"] for side in ("enter", "leave", "stay")] == [["cleo"], ["a/b"], ["bob"]]


def test_other_aggregates_are_read_from_events(client: Client, log: Log, tier: Tier) -> None:
    tier.keep(bought({"ada": 1, "bob": 1, "cleo": 1}))
    for number, user in enumerate(("ada", "ada", "bob", "cleo")):
        log.event(user, "Look", f"e{number}", NOW_MS - HOUR_MS - number)
    log.delivery("bob", "DELIVERED", "d1", NOW_MS - HOUR_MS)
    twice = {"event": "Look", "op": "gte", "value": 2, "within": "7d"}
    assert eventually(lambda: ask(client, "/v1/segments/preview", twice)["sample"]) == ["ada"]
    inside = {"event": "Look", "where": {"property": "ü.0", "op": "eq", "value": "Look"}, "within": "7d"}
    eventually(lambda: ask(client, "/v1/segments/preview", inside)["estimate"] == 3)
    reached = ask(client, "/v1/segments/preview", {"event": "Message Delivered", "within": "7d"})
    assert (reached["estimate"], reached["sample"]) == (1, ["bob"])
    assert ask(client, "/v1/segments/preview", {"event": "Message Failed", "within": "7d"})["estimate"] == 0
    assert ask(client, "/v1/segments/preview", {"event": "Look"})["limits"] != []


def test_a_user_export_is_complete(client: Client, log: Log, tier: Tier) -> None:
    assert is_problem(client.call("GET", "/v1/users/ada/export", role="marketer"), 403, "forbidden")
    assert is_problem(client.call("GET", "/v1/users/ada/export"), 404, "unknown_user")
    tier.keep(bought({"ada": 2}))
    log.profile("ada", {"plan": "pro"})
    log.change("ada", "vip", 2)
    log.event("ada", "Look", "e1", 1_000)
    for key in ("vips", "others"):
        assert client.call("PUT", f"/v1/lists/{key}", {}).status_code == 201
    assert client.call("PUT", "/v1/lists/vips/members", {"users": ["ada"]}).status_code == 200
    found = eventually(lambda: _exported(client))
    assert found["profile"]["traits"] == {"plan": "pro"}
    assert [(one["segment"], one["status"], one["sequence"]) for one in found["segments"]] == [("vip", "EXITED", 2)]
    assert found["lists"] == ["vips"]
    assert found["state"]["memberships"] == {"vip": True}
    assert [one["name"] for one in found["events"]] == ["Look"]


def _explained(client: Client, user: str) -> dict[str, Any] | None:
    answer = client.call("GET", f"/v1/users/{user}/explain/vip", role="viewer")
    explained: dict[str, Any] = answer.json()
    return explained if answer.status_code == 200 else None


def _exported(client: Client) -> dict[str, Any] | None:
    found: dict[str, Any] = client.call("GET", "/v1/users/ada/export").json()
    return found if found["profile"] and found["segments"] and found["events"] else None
