"""Adapter: reads the membership feed, the computed trait and the progress of the campaign from the broker."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import msgspec

from starling_common.kafka.topic_range import read_topic
from starling_common.kafka.topics import CAMPAIGN_PROGRESS, MEMBERSHIP, PROFILE
from starling_common.wire import Registry
from starling_demo.expected import Changes
from starling_demo.expected_messages import HELD_OUT, MAILED, Message


@dataclass
class Feed:
    """The whole feed. Shape: `errors` describes records whose sequence or status does not follow the previous one."""

    changes: dict[str, Changes] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    causes: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    errors: list[str] = field(default_factory=list)
    records: int = 0

    def take(self, record: dict[str, Any]) -> None:
        """Add one record; records of a partition are added in order."""
        changes = self.changes[record["segment_key"]][record["user_id"]]
        status, sequence = record["status"], record["sequence"]
        if sequence != len(changes) + 1 or (status == "ENTERED") != (sequence % 2 == 1):
            self.errors.append(f"{record['user_id']} in {record['segment_key']}: {status} with sequence {sequence}")
        changes.append((status, record["effective_at"]))
        self.causes[record["cause"]["kind"]] += 1
        self.records += 1


def read_feed(brokers: str, registry_url: str) -> Feed:
    """Return all committed membership records. Raises: BrokerUnavailable."""
    codec = Registry(registry_url).codec(MEMBERSHIP, "SegmentMembershipChanged")
    feed = Feed()
    for message in read_topic(brokers, MEMBERSHIP):
        feed.take(codec.decode(message.value() or b""))
    return feed


def read_trait(brokers: str, registry_url: str, key: str) -> dict[str, float]:
    """Return user -> value of the computed trait in the last record of the user's profile. Raises BrokerUnavailable."""
    codec = Registry(registry_url).codec(PROFILE, "ProfileChanged")
    values: dict[str, float] = {}
    for message in read_topic(brokers, PROFILE):
        record = codec.decode(message.value() or b"")
        computed = msgspec.json.decode(record["traits"]).get("computed", {})
        if key in computed:
            values[record["user_id"]] = computed[key]
        else:
            values.pop(record["user_id"], None)
    return values


def read_messages(brokers: str, registry_url: str, campaign: str) -> dict[str, list[Message]]:
    """Return user -> messages of a campaign in order of their decisions. Raises: BrokerUnavailable."""
    codec = Registry(registry_url).codec(CAMPAIGN_PROGRESS, "MessageProgressed")
    found: dict[str, dict[str, Message]] = defaultdict(dict)
    for message in read_topic(brokers, CAMPAIGN_PROGRESS):
        record = codec.decode(message.value() or b"")
        if record["campaign"] != campaign:
            continue
        of_user, step = found[record["user_id"]], record["step"]
        if step == "CONVERTED":
            of_user[record["instance"]] = of_user[record["instance"]]._replace(converted=True)
        elif step in _FATES:
            of_user[record["instance"]] = Message(record["decided_at"], _FATES[step] or record["reason"])
    return {user: sorted(messages.values()) for user, messages in found.items()}


_FATES = {"REQUESTED": MAILED, "HELD_OUT": HELD_OUT, "DROPPED": None}
