"""Hand-made records in the real topics, as the segmenter and the normalizer would write them."""

import json
import uuid
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Producer

from starling_common.headers import record_headers
from starling_common.kafka.clients import produce_and_wait, producer_config
from starling_common.kafka.topics import load_catalogue
from starling_common.wire import Codec, Registry


@dataclass
class Log:
    """Writes for one workspace."""

    brokers: str
    registry: Registry
    workspace: str
    codecs: dict[str, Codec] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.producer = Producer(producer_config(self.brokers, **{"linger.ms": 0}))

    def encode(self, topic: str, record: dict[str, Any]) -> bytes:
        if topic not in self.codecs:
            self.codecs[topic] = self.registry.codec(topic, load_catalogue().topics[topic].schema)
        return self.codecs[topic].encode(record)

    def write(self, topic: str, key: str, record: dict[str, Any]) -> None:
        self.write_raw(topic, key, self.encode(topic, record))

    def write_raw(self, topic: str, key: str, value: bytes) -> None:
        produce_and_wait(
            self.producer, topic, key=f"{self.workspace}/{key}".encode(), value=value, headers=record_headers("test", "test")
        )

    def membership(self, user: str, segment: str, sequence: int, effective_at: int = 1_000) -> dict[str, Any]:
        return {
            "event_id": str(uuid.uuid4()),
            "workspace": self.workspace,
            "user_id": user,
            "anonymous_ids": [],
            "segment_key": segment,
            "segment_name": segment,
            "segment_version": 1,
            "status": "ENTERED" if sequence % 2 else "EXITED",
            "sequence": sequence,
            "effective_at": effective_at,
            "decided_at": 0,
            "cause": {"kind": "EVENT", "message_id": None, "event_name": None},
            "correlation_id": "test",
            "traits": "{}",
            "memberships": [segment] if sequence % 2 else [],
            "received_at": 0,
        }

    def change(self, user: str, segment: str, sequence: int, effective_at: int = 1_000) -> None:
        self.write("segments.membership", user, self.membership(user, segment, sequence, effective_at))

    def profile(self, user: str, traits: dict[str, Any]) -> None:
        record = {
            "received_at": 1,
            "workspace": self.workspace,
            "user_id": user,
            "anonymous_ids": ["cookie-1"],
            "event_id": str(uuid.uuid4()),
            "message_id": None,
            "change": "TRAITS",
            "event_time": 1,
            "changed": list(traits),
            "traits": json.dumps(traits),
            "group_id": None,
            "group_traits": "{}",
            "previous_id": None,
            "context": "{}",
            "correlation_id": "test",
        }
        self.write("events.profile", user, record)

    def event(self, user: str, name: str, event_id: str, event_time: int) -> None:
        record = {
            "received_at": 1,
            "workspace": self.workspace,
            "user_id": user,
            "anonymous_ids": [],
            "event_id": event_id,
            "message_id": f"m-{event_id}",
            "kind": "track",
            "name": name,
            "event_time": event_time,
            "raw_timestamp": None,
            "raw_sent_at": None,
            "properties": json.dumps({"ü": [name]}),
            "context": "{}",
            "traits": "{}",
            "products": [],
            "correlation_id": "test",
        }
        self.write("events.behaviour", user, record)

    def message_step(
        self,
        user: str,
        step: str,
        *,
        reason: str | None = None,
        variant: str | None = "a",
        value: float | None = None,
        held_out: bool = False,
        is_first: bool = True,
    ) -> None:
        record = {
            "received_at": 1,
            "workspace": self.workspace,
            "user_id": user,
            "delivery_id": f"d-{user}",
            "campaign": "win-back",
            "instance": "1",
            "version": 1,
            "variant": variant,
            "step": step,
            "reason": reason,
            "due_at": 0,
            "decided_at": 0,
            "at": 0,
            "value": value,
            "day": 20_454,
            "held_out": held_out,
            "is_first": is_first,
            "correlation_id": "test",
        }
        self.write("campaigns.progress", user, record)

    def delivery(self, user: str, outcome: str, event_id: str, event_time: int) -> None:
        record = {
            "received_at": 1,
            "workspace": self.workspace,
            "user_id": user,
            "event_id": event_id,
            "delivery_id": "d1",
            "channel": "webhook",
            "target_key": "crm",
            "outcome": outcome,
            "attempt": 1,
            "status_code": 204,
            "detail": None,
            "segment_key": "vip",
            "event_time": event_time,
            "correlation_id": "test",
        }
        self.write("events.delivery", user, record)

    def progress(self, versions: dict[str, int], stream_time_ms: int) -> None:
        """Every partition of the segmenter reports; `versions` by segment key."""
        definitions = {f"{self.workspace}/{key}": version for key, version in versions.items()}
        for partition in range(load_catalogue().profile_partitions):
            record = {
                "recorded_at": 1,
                "partition": partition,
                "stream_time": stream_time_ms + partition,
                "definitions": definitions,
            }
            self.write("segments.progress", str(partition), record)
