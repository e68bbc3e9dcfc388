"""How long the projector's own thread takes for one record, from bytes to encoded writes, without a broker and a database.

python benchmarks/projector_rows.py [records] [users]      prints one JSON document
"""

import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from cassandra.cqltypes import Int32Type, LongType, UserType, UTF8Type

from starling_common.cassandra.encoding import row_encoder
from starling_common.kafka.topics import BEHAVIOUR, MEMBERSHIP, load_catalogue
from starling_common.wire import Codec, FieldReader, Record
from starling_projector.decoder import FIELDS
from starling_projector.projection.batch import Inbound, Topics, read_batch
from starling_projector.projection.destinations import Destination
from starling_projector.projection.tallies import Tally, count, keys_of
from starling_projector.projection.writes import by_partition, newest, phases

BATCH = 2_000
_PLAIN = {"string": "x", "long": 0, "int": 0, "boolean": False, "array": []}
ROUNDS = 5
CHANGE = UserType.make_udt_class("ks", "membership_change", ("a", "b", "c", "d"), (UTF8Type, LongType, LongType, Int32Type))
EVENT = UserType.make_udt_class("ks", "user_event", tuple("abcdef"), (UTF8Type, UTF8Type, UTF8Type, UTF8Type, LongType, UTF8Type))
USER = (UTF8Type, Int32Type, Int32Type, UTF8Type)
COLUMNS = {
    Destination.MEMBER: (UTF8Type, UTF8Type, Int32Type, UTF8Type, LongType, LongType, LongType),
    Destination.MEMBER_GONE: (LongType, UTF8Type, UTF8Type, Int32Type, UTF8Type),
    Destination.USER_MEMBERSHIP: (*USER, UTF8Type, CHANGE, LongType),
    Destination.USER_EVENT: (*USER, LongType, UTF8Type, EVENT, LongType),
}
STATEMENTS = {destination: destination.name for destination in Destination}


def record_of(codec: Codec, values: Record) -> bytes:
    """Return a record with the given fields and plain values in all others."""
    return codec.encode(
        {**values} | {field["name"]: _plain(field["type"]) for field in _fields(codec) if field["name"] not in values}
    )


def _fields(codec: Codec) -> list[dict[str, Any]]:
    return list(json.loads(codec.schema)["fields"])


def _plain(kind: Any) -> Any:
    match kind:
        case {"type": "record", "fields": fields}:
            return {field["name"]: _plain(field["type"]) for field in fields}
        case {"type": "enum", "symbols": symbols}:
            return symbols[0]
        case {"type": str() as name}:
            return _PLAIN.get(name)
        case str():
            return _PLAIN.get(kind)


def inputs(topic: str, records: int, users: int) -> list[Inbound]:
    """Return records of one topic, of random users."""
    dice, codec = random.Random(7), Codec(load_catalogue().topics[topic].schema, 7, lambda _id: "")
    found = []
    for number in range(records):
        user = f"user-{dice.randrange(users)}"
        values = {
            "workspace": "acme", "user_id": user, "received_at": 1_700_000_000_000_000 + number, "correlation_id": "c-1",
            "segment_key": f"switch-{dice.randrange(3)}", "segment_version": 1, "status": dice.choice(("ENTERED", "EXITED")),
            "sequence": number, "effective_at": 1_700_000_000_000, "event_id": f"e-{number}", "event_time": 1_700_000_000_000,
            "kind": "track", "name": "Order Completed", "message_id": f"m-{number}", "context": "{}",
            "properties": '{"revenue":29.9,"category":"shoes","product_id":"sku-1","quantity":2,"currency":"EUR"}',
        }  # fmt: skip
        found.append(Inbound(topic, 0, number, user.encode(), record_of(codec, values), (), 1_700_000_000_000))
    return found


def micros(topic: str, records: int, users: int) -> float:
    """Return the microseconds of processor time a record, the median of the rounds."""
    feed = inputs(topic, records, users)
    codec = Codec(load_catalogue().topics[topic].schema, 7, lambda _id: "")
    reader, fields = FieldReader(codec, FIELDS[topic]), FIELDS[topic]
    encoders = {destination.name: row_encoder(types) for destination, types in COLUMNS.items()}

    def decode(_topic: str, value: bytes) -> Record:
        return dict(zip(fields, reader(value), strict=True))

    times = []
    for _ in range(ROUNDS):
        began = time.process_time()
        for start in range(0, len(feed), BATCH):
            _project(feed[start : start + BATCH], decode, encoders)
        times.append((time.process_time() - began) / len(feed) * 1e6)
    return round(statistics.median(times), 2)


def _project(feed: list[Inbound], decode: Callable[[str, bytes], Record], encoders: Mapping[str, Callable[..., object]]) -> None:
    batch = read_batch(feed, decode, Topics({MEMBERSHIP: 0, BEHAVIOUR: 0}, 8))
    count({key: Tally() for change in batch.changes for key in keys_of(change)}, batch.changes)
    for phase in phases(newest(batch.rows)):
        for writes in by_partition(phase, STATEMENTS):
            for statement, values in writes:
                encoders[statement](values)


def main(records: int, users: int) -> dict[str, float]:
    """Measure both topics."""
    return {topic: micros(topic, records, users) for topic in (MEMBERSHIP, BEHAVIOUR)}


if __name__ == "__main__":
    print(json.dumps(main(*(int(word) for word in (sys.argv[1:] or ["40000", "50000"])))))
