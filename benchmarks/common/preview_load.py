"""The tables of the preview's benchmark: lives that the segment package evaluates, assigned to any number of users."""

import json
import random
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from common import shop
from common.bench import PARTITIONS, Stack
from starling_common.cassandra.database import Database, Write
from starling_common.cassandra.read_models import SEGMENT, member_bucket, user_partition
from starling_common.kafka.clients import topic_ids
from starling_common.partitioning import partition_of
from starling_common.values import plan_name, record_key
from starling_segments import LEAVES, Evaluator, Known, UserState, encode_state, parse_segment
from starling_segments.engine.trait_conditions import share_of
from starling_stream.model.backing_store import Checkpoint, PartitionCopy, StageLayout, StateWrite
from starling_stream.model.meta import TaskMeta, encode_meta
from starling_stream.model.rows import NEVER, row_of
from starling_stream.state.cassandra import CassandraBackingStore

WORKSPACE: Final = "default"
LIVES: Final = 2_000
BUCKETS: Final = 32
CHANGELOG: Final = "segmenter-state-changelog"
NOW_MS: Final = int(time.time() * 1000)
TINY: Final = {"bucket": {"salt": "tiny", "from": 0, "to": 0.1}}
_EVENTS_SPAN_MS: Final = 28 * shop.DAY_MS
_CHUNK: Final = 20_000
_DEFINE: Final = (
    "INSERT INTO {ks}.definitions (workspace, kind, key, version, status, document, actor, created_at_micros, recorded_at_micros) "
    "VALUES (?, ?, ?, 1, 'defined', ?, 'benchmark', 1, 1)"
)
_PROGRESS: Final = (
    "INSERT INTO {ks}.segmenter_progress (id, source_partition, stream_time_ms, definitions, recorded_at_micros) "
    "VALUES (0, ?, ?, ?, ?)"
)
_EVENT: Final = (
    "INSERT INTO {ks}.user_history (workspace, source_partition, bucket, user_id, event_time_ms, event_id, event) "
    "VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_COUNT: Final = (
    "INSERT INTO {ks}.segment_counts (workspace, segment_key, source_partition, entered, exited, counted_offset) "
    "VALUES (?, ?, 0, ?, 0, 1)"
)
_MEMBER: Final = (
    "INSERT INTO {ks}.segment_members (workspace, segment_key, bucket, user_id, entered_at_ms, sequence) VALUES (?, ?, ?, ?, 1, 1)"
)


@dataclass(frozen=True)
class Happened:
    """One event of a life."""

    name: str
    time_ms: int
    properties: Mapping[str, Any]
    context: Mapping[str, Any]


@dataclass(frozen=True)
class Life:
    """What one user in two thousand did and is: the same for all its users."""

    state: UserState
    events: Sequence[Happened]


def segments() -> dict[str, Any]:
    wheres = {**shop.conditions(), "tiny": TINY}
    known = Known({key: frozenset() for key in wheres})
    return {key: parse_segment({"key": key, "name": key, "where": where}, known) for key, where in wheres.items()}


def lives(evaluator: Evaluator) -> list[Life]:
    """Different people: many did nothing lately, some a lot."""
    dice, pool = random.Random(1), []
    for _ in range(LIVES):
        state = UserState(user_id="unknown")
        traits = {
            "plan": dice.choice(("free", "free", "free", "pro")),
            "country": dice.choice(("DE", "JP", "US")),
            "age": dice.randint(18, 80),
        }
        count = min(60, int(dice.expovariate(1 / 6)))
        times = sorted(NOW_MS - dice.randrange(1, _EVENTS_SPAN_MS) for _ in range(count))
        events = [Happened(dice.choices(shop.NAMES, shop.WEIGHTS)[0], at, _properties(dice), {}) for at in times]
        evaluator.on_profile(state, traits, [], NOW_MS - _EVENTS_SPAN_MS)
        for event in events:
            evaluator.on_event(state, event, event.time_ms)
        evaluator.on_timer(state, NOW_MS)
        pool.append(Life(state, events))
    return pool


def _properties(dice: random.Random) -> dict[str, Any]:
    return {
        "revenue": dice.randint(5, 200),
        "category": dice.choice(("shoes", "hats", "bags")),
        "product_id": f"sku-{dice.randrange(500)}",
    }


def load(made: Stack, database: Database, pool: Sequence[Life], users: int) -> None:
    """Everything that the API reads."""
    ids = topic_ids(made.brokers, [CHANGELOG])
    log = ids[CHANGELOG][0]
    backing = CassandraBackingStore(database, BUCKETS)
    backing.freeze(StageLayout("segmenter", PARTITIONS, BUCKETS, {CHANGELOG: log}))
    documents = {key: {"key": key, "name": key, "where": where} for key, where in {**shop.conditions(), "tiny": TINY}.items()}
    database.write_each(_DEFINE, [(WORKSPACE, SEGMENT, key, json.dumps(document)) for key, document in documents.items()])
    name = plan_name(((f"{WORKSPACE}/{key}", 1, False) for key in documents), LEAVES)
    versions = {f"{WORKSPACE}/{key}": 1 for key in documents}
    database.write_each(_PROGRESS, [(number, NOW_MS, versions, NOW_MS * 1000) for number in range(PARTITIONS)])
    for start in range(0, users, _CHUNK):
        chunk = [f"user-{number}" for number in range(start, min(users, start + _CHUNK))]
        _load_states(backing, log, pool, chunk)
        database.write_batches([_events(user, life_of(pool, user).events) for user in chunk if life_of(pool, user).events])
        _load_members(database, chunk)
        print(f"{start + len(chunk):,} of {users:,}", file=sys.stderr)
    for key in ("buyers-7d", "tiny"):
        database.write(_COUNT, (WORKSPACE, key, sum(_is_member(pool, number, key) for number in range(users))))
    meta = encode_meta(TaskMeta(1, NOW_MS, name))
    for number in range(PARTITIONS):
        backing.save_checkpoint(PartitionCopy(log, number, 0), Checkpoint(0, 0, meta, 0))


def life_of(pool: Sequence[Life], user: str) -> Life:
    return pool[hash_of(user) % len(pool)]


def hash_of(user: str) -> int:
    """Who lives which life has to do with neither the partition nor the bucket."""
    return int.from_bytes(blake2b(user.encode(), digest_size=4).digest())


def _load_states(backing: CassandraBackingStore, log: str, pool: Sequence[Life], users: Sequence[str]) -> None:
    by_partition: dict[int, list[StateWrite]] = {}
    for user in users:
        state, key = life_of(pool, user).state, record_key(WORKSPACE, user)
        state.user_id = user
        row = row_of(1, NEVER + encode_state(state))
        by_partition.setdefault(partition_of(key, PARTITIONS), []).append(StateWrite(key, row, 1, None, None))
    for partition, writes in by_partition.items():
        backing.write(PartitionCopy(log, partition, 0), writes)


def _events(user: str, events: Sequence[Happened]) -> list[Write]:
    key = (*user_partition(WORKSPACE, user, PARTITIONS), user)
    return [(_EVENT, (*key, event.time_ms, f"{user}-{number}", _event_value(event, number))) for number, event in enumerate(events)]


def _event_value(event: Happened, number: int) -> tuple[Any, ...]:
    details = json.dumps({"properties": event.properties, "context": {}})
    return "track", event.name, f"m{number}", details, event.time_ms * 1000 + number, "c"


def _load_members(database: Database, users: Sequence[str]) -> None:
    """Return the members of the small segment, the only ones that the benchmark reads."""
    members = [user for user in users if is_in(TINY, user)]
    database.write_each(_MEMBER, [(WORKSPACE, "tiny", member_bucket(user), user) for user in members])


def is_in(bucketed: Mapping[str, Any], user: str) -> bool:
    bucket = bucketed["bucket"]
    return bool(share_of(bucket["salt"], user) < bucket["to"])


def _is_member(pool: Sequence[Life], number: int, key: str) -> bool:
    user = f"user-{number}"
    if key == "tiny":
        return is_in(TINY, user)
    membership = life_of(pool, user).state.memberships.get(key)
    return membership is not None and membership.member
