"""The feed, the consent and the targets of one workspace, on the real broker and Cassandra."""

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Producer

from starling_common.cassandra.database import Database
from starling_common.cassandra.read_models import user_partition
from starling_common.headers import record_headers
from starling_common.kafka.clients import producer_config
from starling_common.kafka.topic_range import read_topic
from starling_common.kafka.topics import (
    AUDIENCE_RETRY,
    CONSENT,
    DELIVERY,
    DELIVERY_DEAD_LETTERS,
    DELIVERY_DEFINITIONS,
    MEMBERSHIP,
    MEMBERSHIP_STATE,
    load_catalogue,
)
from starling_common.partitioning import partition_of
from starling_common.time.instants import wall_clock_micros
from starling_common.values import record_key
from starling_common.wire import Codec, Registry
from tests.conftest import Stack
from tests.integration.audience.vendors import Vendors
from tests.unit.audience.making import SECRET
from tests.unit.delivery.making import change

PARTITIONS = load_catalogue().profile_partitions
_USER = "workspace, source_partition, bucket, user_id"
MEMBERSHIP_ROW = f"INSERT INTO {{ks}}.user_memberships ({_USER}, segment_key, change) VALUES (?, ?, ?, ?, ?, ?)"  # noqa: S608 - constants
PROFILE_ROW = f"INSERT INTO {{ks}}.user_profiles ({_USER}, profile) VALUES (?, ?, ?, ?, ?)"  # noqa: S608 - constants


@dataclass
class World:
    """`members`: the fold of the feed: (user, segment) -> whether the user is a member. `sequences`: the last one of each pair."""

    stack: Stack
    database: Database
    workspace: str
    vendors: Vendors
    members: dict[tuple[str, str], bool] = field(default_factory=dict)
    sequences: dict[tuple[str, str], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.registry = Registry(self.stack.registry_url)
        self.producer = Producer(producer_config(self.stack.brokers))
        self._codecs: dict[str, Codec] = {}
        self._versions: dict[str, int] = {}
        self.targets: dict[str, dict[str, Any]] = {}

    def codec(self, topic: str) -> Codec:
        if topic not in self._codecs:
            self._codecs[topic] = self.registry.codec(topic, load_catalogue().topics[topic].schema)
        return self._codecs[topic]

    def put(self, topic: str, key: bytes, record: Mapping[str, Any], partition: int = 0) -> None:
        headers = record_headers("test", "test")
        self.producer.produce(topic, self.codec(topic).encode(record), key, partition, headers=headers)
        self.producer.poll(0)

    def flush(self) -> None:
        assert self.producer.flush(30) == 0

    def toggle(self, users: Iterable[str], segment: str = "vip", **traits: Any) -> None:
        """Let users enter a segment, or leave it if they are members."""
        for user in users:
            pair = user, segment
            sequence = self.sequences[pair] = self.sequences.get(pair, 0) + 1
            self.members[pair] = sequence % 2 == 1
            record = change(
                user,
                "ENTERED" if self.members[pair] else "EXITED",
                segment,
                workspace=self.workspace,
                sequence=sequence,
                event_id=str(uuid.uuid4()),
                received_at=wall_clock_micros(),
                traits=json.dumps({"email": f"{user}@example.com", **traits}),
            )
            profile = record_key(self.workspace, user)
            number = partition_of(profile, PARTITIONS)
            self.put(MEMBERSHIP, profile, record, number)
            self.put(MEMBERSHIP_STATE, b"%b/%b" % (profile, segment.encode()), record, number)
        self.flush()

    def consent(self, user: str, granted: bool, at: int) -> None:
        profile = record_key(self.workspace, user)
        record = {
            "received_at": wall_clock_micros(), "workspace": self.workspace, "user_id": user, "channel": "audience",
            "purpose": None, "granted": granted, "source": "api", "changed_at": at, "correlation_id": "test",
        }  # fmt: skip
        self.put(CONSENT, profile + b"/audience/", record, partition_of(profile, PARTITIONS))
        self.flush()

    def define(self, key: str, document: Mapping[str, Any], *, action: str = "DEFINED", kind: str = "target") -> None:
        self._versions[key] = self._versions.get(key, 0) + (action != "ARCHIVED")
        found = {"key": key, **document}
        if kind == "target":
            self.targets[key] = dict(document)
        record = {
            "recorded_at": wall_clock_micros(), "event_id": str(uuid.uuid4()), "workspace": self.workspace, "kind": kind,
            "key": key, "version": self._versions[key], "action": action, "document": json.dumps(found), "actor": "test",
            "correlation_id": "test",
        }  # fmt: skip
        self.put(DELIVERY_DEFINITIONS, record_key(self.workspace, key), record)
        self.flush()

    def opt_out(self) -> None:
        """Let the policy add users without a statement."""
        self.define("policy", {"consent": {"audience": "opt_out"}}, kind="policy")

    def endpoint(self, key: str, *segments: str) -> None:
        """Define a target over HTTP, whose audience of a segment is `key/segment`."""
        url = f"{self.vendors.url}/{key}"
        document = {"adapter": "http", "url": url, "secret": SECRET, "segments": [*(segments or ("vip",))]}
        self.define(key, {"channel": "audience", **document})

    def archive(self) -> None:
        for key, document in self.targets.copy().items():
            self.define(key, document, action="ARCHIVED")

    def store(self, user: str, segment: str, **traits: Any) -> None:
        """Write the rows of the projector for the present membership of a user."""
        place = (*user_partition(self.workspace, user, PARTITIONS), user)
        status = "ENTERED" if self.members[user, segment] else "EXITED"
        self.database.write(MEMBERSHIP_ROW, (*place, segment, (status, self.sequences[user, segment], 1_000, 1)))
        self.database.write(PROFILE_ROW, (*place, ([], json.dumps({"email": f"{user}@example.com", **traits}), None, 1, 1)))

    def expected(self, segment: str = "vip") -> set[str]:
        """The members of a segment, by the fold of the feed."""
        return {user for (user, name), is_in in self.members.items() if name == segment and is_in}

    def records(self, topic: str) -> list[dict[str, Any]]:
        # Other tests write broken records to the topic.
        values = [
            value
            for message in read_topic(self.stack.brokers, topic)
            if self.workspace.encode() in (value := message.value() or b"")
        ]
        return [one for one in map(self.codec(topic).decode, values) if one["workspace"] == self.workspace]

    def reports(self) -> list[dict[str, Any]]:
        return self.records(DELIVERY)

    def letters(self) -> list[dict[str, Any]]:
        return self.records(DELIVERY_DEAD_LETTERS)

    def replay(self, letter: Mapping[str, Any]) -> None:
        """What `starling dlq replay` does."""
        assert letter["origin_topic"] == AUDIENCE_RETRY
        self.producer.produce(AUDIENCE_RETRY, letter["value"], letter["key"], partition_of(letter["key"], PARTITIONS))
        self.flush()

    def settings(self, **own: str) -> dict[str, str]:
        return {
            **self.stack.environment(),
            "STARLING_BATCH_SECONDS": "0.3",
            "STARLING_FIRST_RETRY_SECONDS": "0.3",
            "STARLING_PROBE_SECONDS": "1",
            "STARLING_ALLOW_PRIVATE_ADDRESSES": "true",
            **own,
        }
