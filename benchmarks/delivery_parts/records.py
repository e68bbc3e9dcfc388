"""The records of the benchmarks of delivery: definitions, membership changes, profiles and requests of messages."""

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from common.bench import PARTITIONS, Stack
from common.segmenting import load
from confluent_kafka import Producer

from starling_common.headers import record_headers
from starling_common.kafka.clients import producer_config
from starling_common.kafka.topics import DELIVERY_DEFINITIONS, MEMBERSHIP_STATE, WEBHOOK_DEFINITIONS, load_catalogue
from starling_common.partitioning import partition_of
from starling_common.values import deterministic_id, record_key
from starling_common.wire import Registry

WORKSPACE: Final = "default"
SIGNING: Final = "whsec_QUJDREVGR0hJSktMTU5PUFFSU1RVVldY"
CAMPAIGN: Final = "welcome"
TARGET: Final = "relay"
EFFECTIVE_MS: Final = 1_767_225_600_000
HEADERS: Final = record_headers("benchmark", "benchmark")
CONTENT: Final = {
    "subject": "Hello {{ traits.name }}",
    "html": "<h1>Hello {{ traits.name }}</h1>" + "<p>Thank you for your order. It is on its way to {{ traits.city }}.</p>" * 8,
    "text": "Hello {{ traits.name }}\n" + "Thank you for your order. It is on its way to {{ traits.city }}.\n" * 8,
}
"""A mail of about 1.5 KiB."""


def traits(user: str) -> dict[str, Any]:
    return {"email": f"{user}@example.com", "name": "Ada", "city": "Berlin", "plan": "pro", "country": "DE"}


def changes(count: int, users: int, segment: str = "vip", run: str = "") -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Return the changes of a segment, one for each of so many users in turn. `run`: makes their ids those of one round."""
    for number in range(count):
        user = f"user-{number % users}"
        yield record_key(WORKSPACE, user), change(user, segment, number // users + 1, EFFECTIVE_MS + number, run)


def change(user: str, segment: str, sequence: int, at_ms: int, run: str = "") -> dict[str, Any]:
    """Return one `SegmentMembershipChanged`: an entry if the sequence is odd."""
    return {
        "event_id": deterministic_id(WORKSPACE, user, segment, sequence, run),
        "workspace": WORKSPACE,
        "user_id": user,
        "anonymous_ids": [],
        "segment_key": segment,
        "segment_name": "Very important",
        "segment_version": 1,
        "status": "ENTERED" if sequence % 2 else "EXITED",
        "sequence": sequence,
        "effective_at": at_ms,
        "decided_at": at_ms,
        "cause": {"kind": "EVENT", "message_id": f"m-{user}-{sequence}", "event_name": "Order Completed"},
        "correlation_id": f"c-{user}-{sequence}",
        "traits": json.dumps(traits(user)),
        "memberships": [segment],
        "received_at": at_ms * 1000,
    }


def profiles(users: Iterable[str], at_ms: int) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Return one `ProfileChanged` for each user."""
    for user in users:
        yield (
            record_key(WORKSPACE, user),
            {
                "received_at": at_ms * 1000, "workspace": WORKSPACE, "user_id": user, "anonymous_ids": [], "event_id": f"e-{user}",
                "message_id": f"m-{user}", "change": "TRAITS", "event_time": at_ms, "changed": [],
                "traits": json.dumps(traits(user)), "group_id": None, "group_traits": "{}", "previous_id": None,
                "context": "{}", "correlation_id": "benchmark", "order": 0, "previous_order": 0,
            },
        )  # fmt: skip


def requests(count: int, users: int) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Return requests of mails as the messenger writes them, one for each of so many users in turn."""
    now_ms = int(time.time() * 1000)
    for number in range(count):
        user = f"user-{number % users}"
        yield (
            record_key(WORKSPACE, user),
            {
                "received_at": now_ms * 1000, "workspace": WORKSPACE, "user_id": user,
                "delivery_id": deterministic_id(WORKSPACE, CAMPAIGN, user, str(number), ""), "channel": "email",
                "target_key": TARGET, "address": f"{user}@example.com", "payload": "", "attempt": 1, "first_attempt_at": now_ms,
                "not_before": now_ms, "last_error": None, "segment_key": None, "correlation_id": f"c-{number}",
                "batch_limit": None, "campaign": CAMPAIGN, "version": 1, "variant": "a", "locale": None,
                "purpose": "transactional", "sequence": 1, "device": None,
                "context": json.dumps({"event": None, "traits": traits(user)}), "expires_at": now_ms + 86_400_000,
                "is_test": False,
            },
        )  # fmt: skip


def campaign(key: str = CAMPAIGN, **more: Any) -> dict[str, Any]:
    """Return a campaign: a mail to each user who enters the segment of its name."""
    return {
        "key": key, "name": key, "trigger": {"enter": key}, "channel": "email", "target": TARGET, "purpose": "transactional",
        "variants": [{"key": "a", "weight": 100, "content": CONTENT}], **more,
    }  # fmt: skip


def relay(port: int, **more: Any) -> dict[str, Any]:
    """Return a target: an SMTP server of this machine."""
    return {
        "key": TARGET, "channel": "email", "host": "127.0.0.1", "port": port, "tls": "none", "from": "Shop <shop@example.com>",
        **more,
    }  # fmt: skip


def define(made: Stack, kind: str, document: Mapping[str, Any], action: str = "DEFINED", version: int = 1) -> None:
    """Write a definition of campaigns, or of a webhook."""
    key = str(document.get("key", kind))
    record = {
        "recorded_at": time.time_ns() // 1000,
        "event_id": deterministic_id("benchmark", kind, key, str(version), action),
        "workspace": WORKSPACE,
        "kind": kind,
        "key": key,
        "version": version,
        "action": action,
        "document": json.dumps(document),
        "actor": "benchmark",
        "correlation_id": "benchmark",
        "awaits_backfill": False,
    }
    topic = WEBHOOK_DEFINITIONS if kind == "webhook" else DELIVERY_DEFINITIONS
    load(made, topic, iter([(record_key(WORKSPACE, key), record)]))


def define_mails(made: Stack, target: Mapping[str, Any], version: int = 1) -> None:
    """Write the active campaign and its target."""
    define(made, "target", target, "DEFINED" if version == 1 else "REVISED", version)
    define(made, "campaign", campaign(), "ACTIVATED")


def write_entries(made: Stack, entries: Iterable[tuple[str, str, int]]) -> None:
    """Write entries to `segments.membership-state`, each to the partition of its user, as the segmenter does.

    `entries`: user, segment, and the instant in epoch ms.
    """
    codec = Registry(made.registry_url).codec(MEMBERSHIP_STATE, load_catalogue().topics[MEMBERSHIP_STATE].schema)
    producer = Producer(producer_config(made.brokers, **{"queue.buffering.max.messages": 200_000, "linger.ms": 50}))
    for user, segment, at_ms in entries:
        value = codec.encode(change(user, segment, 1, at_ms))
        key, partition = record_key(WORKSPACE, f"{user}/{segment}"), partition_of(record_key(WORKSPACE, user), PARTITIONS)
        while True:
            try:
                producer.produce(MEMBERSHIP_STATE, value, key, partition, headers=HEADERS)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(300) == 0
