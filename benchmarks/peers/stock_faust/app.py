"""The segmenter as users of stock Faust would write it: an agent, a RocksDB table, one read and one write an event.

The rules, the state, the decoding of Avro and the records written are those of the segmenter, so that what differs is
how the stream is run. At least once, Faust's defaults, nothing batched. Reads `PEER_COUNT` records of `PEER_INPUT`,
prints the times of its assignment and of its first record, and ends: python app.py worker --without-web -l warn
"""

import json
import os
import time
from typing import Any

import faust
import msgspec

from starling_common.kafka.topics import BEHAVIOUR, PROFILE
from starling_common.time.instants import wall_clock_micros
from starling_common.values import split_key
from starling_common.wire import Registry
from starling_rules.definitions import Definitions, fold
from starling_rules.events import BEHAVIOUR_FIELDS, Behaviour
from starling_rules.rules import Rules, compiled
from starling_segments import Change, UserState, decode_state, encode_state

from common import shop  # isort: skip - the benchmark's own, beside its parents

INPUT, COUNT = os.environ["PEER_INPUT"], int(os.environ["PEER_COUNT"])
registry = Registry(os.environ["STARLING_REGISTRY__URL"])
codecs = {BEHAVIOUR: registry.codec(BEHAVIOUR, "BehaviourEvent"), PROFILE: registry.codec(PROFILE, "ProfileChanged")}
membership_codec = registry.codec("segments.membership", "SegmentMembershipChanged")
parse = msgspec.json.Decoder(dict[str, Any]).decode


def shop_rules() -> Rules:
    definitions = Definitions()
    for _, record in shop.definitions():
        definitions = fold(definitions, record).value  # type: ignore[union-attr]
    return compiled(definitions.of("default"))


rules = shop_rules()
app = faust.App(
    "stock-segmenter",
    broker=f"kafka://{os.environ['STARLING_KAFKA__BROKERS']}",
    store="rocksdb://?driver=rocksdict",
    datadir=os.environ["PEER_DATA_DIR"],
    topic_partitions=8,
    value_serializer="raw",
    key_serializer="raw",
    consumer_auto_offset_reset="earliest",
)
source = app.topic(INPUT, value_type=bytes, key_type=bytes)
feed = app.topic("stock-segmenter-membership", value_type=bytes, key_type=bytes)
latest = app.topic("stock-segmenter-membership-state", value_type=bytes, key_type=bytes)
users = app.Table("users", key_type=bytes, value_type=bytes, partitions=8)


def step(state: UserState, record: dict[str, Any]) -> list[Change]:
    if INPUT == PROFILE:
        return rules.evaluator.on_profile(state, parse(record["traits"]), record["anonymous_ids"], record["event_time"])
    event = Behaviour(tuple(record[field] for field in BEHAVIOUR_FIELDS))
    return rules.evaluator.on_event(state, event, max(state.clock, record["event_time"]))


def membership_change(change: Change, key: bytes, state: UserState, record: dict[str, Any]) -> bytes:
    workspace, user_id = split_key(key)
    return membership_codec.encode(
        {
            "event_id": f"{user_id}/{change.segment_key}/{change.sequence}",
            "workspace": workspace,
            "user_id": user_id,
            "anonymous_ids": state.anonymous_ids,
            "segment_key": change.segment_key,
            "segment_name": change.segment_key,
            "segment_version": change.segment_version,
            "status": change.status,
            "sequence": change.sequence,
            "effective_at": change.effective_at,
            "decided_at": wall_clock_micros() // 1000,
            "cause": {"kind": change.cause, "message_id": record.get("message_id"), "event_name": record.get("name")},
            "correlation_id": record["correlation_id"],
            "traits": json.dumps(state.traits),
            "memberships": sorted(key for key, membership in state.memberships.items() if membership.member),
            "received_at": record["received_at"],
        }
    )


def report(**found: float) -> None:
    """One JSON object on a line of its own. Not `print`: Faust turns what a worker prints into log lines."""
    os.write(1, (json.dumps(found) + "\n").encode())


@app.on_partitions_assigned.connect
async def assigned(_: Any, /, *__: Any, **___: Any) -> None:
    report(assigned_at=time.time())


@app.agent(source)
async def segment(stream: faust.StreamT[bytes]) -> None:
    done, began, cpu = 0, 0.0, 0.0
    async for key, value in stream.items():
        if done == 0:
            began, cpu = time.monotonic(), time.process_time()
            report(first_event_at=time.time())
        record = codecs[INPUT].decode(value)
        stored = users.get(key)
        state = decode_state(stored) if stored else UserState()
        changes = step(state, record)
        users[key] = encode_state(state)
        for change in changes:
            encoded = membership_change(change, key, state, record)
            await feed.send(key=key, value=encoded)
            await latest.send(key=key + b"/" + change.segment_key.encode(), value=encoded)
        done += 1
        if done == COUNT:
            report(events=done, seconds=time.monotonic() - began, cpu_seconds=time.process_time() - cpu)
            # Let the table's offsets be committed, then end: Faust's own way out takes its time.
            app.loop.call_later(10.0, os._exit, 0)


if __name__ == "__main__":
    app.main()
