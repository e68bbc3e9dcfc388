"""Adapter: the present traits and memberships of users in Cassandra, and how far the projector is."""

import json
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from starling_common.cassandra.database import Database
from starling_common.cassandra.read_models import user_partition
from starling_common.kafka.clients import BrokerUnavailable, committed, consumer_config
from starling_common.kafka.topics import MEMBERSHIP, stage

_USER: Final = "workspace = ? AND source_partition = ? AND bucket = ? AND user_id = ?"
_PROFILE: Final = f"SELECT profile FROM {{ks}}.user_profiles WHERE {_USER}"  # noqa: S608 - constants
_MEMBERSHIPS: Final = f"SELECT segment_key, change FROM {{ks}}.user_memberships WHERE {_USER}"  # noqa: S608 - constants
_ANSWER_SECONDS: Final = 5.0
_PAGE: Final = 500
"""Users of one look-up: their rows are in memory at one time."""


class Membership(NamedTuple):
    """The last change of a user in a segment. `effective_at`: epoch ms."""

    is_member: bool
    sequence: int
    effective_at: int


class KnownUser(NamedTuple):
    """The traits and the memberships of a user, former ones included."""

    traits: Mapping[str, Any]
    memberships: Mapping[str, Membership]


class ReadModel:
    """Reads what the projector wrote. Methods may raise DatabaseUnavailable and BrokerUnavailable. Thread-safe."""

    def __init__(self, database: Database, brokers: str, partitions: int) -> None:
        """Connect at the first query. `partitions`: number of partitions of the topics keyed by profile."""
        self._database = database
        self._brokers = brokers
        self._partitions = partitions
        self._consumer: Consumer | None = None
        self._lock = Lock()

    def users(self, workspace: str, users: Sequence[str]) -> Mapping[str, KnownUser]:
        """Return the users by id; unknown ones have neither traits nor memberships."""
        found: dict[str, KnownUser] = {}
        for start in range(0, len(users), _PAGE):
            some = users[start : start + _PAGE]
            keys = [(*user_partition(workspace, user, self._partitions), user) for user in some]
            profiles = self._database.read_each(_PROFILE, keys)
            memberships = self._database.read_each(_MEMBERSHIPS, keys)
            for user, profile, changes in zip(some, profiles, memberships, strict=True):
                known = {row["segment_key"]: _membership(row["change"]) for row in changes}
                found[user] = KnownUser(_traits(profile[0]["profile"].traits) if profile else {}, known)
        return found

    def is_current(self, positions: Mapping[int, int]) -> bool:
        """Return whether the tables have every membership change before these offsets of `segments.membership`, by partition."""
        if not positions:
            return True
        places = [TopicPartition(MEMBERSHIP, number) for number in positions]
        with self._lock:
            if self._consumer is None:  # in the group of the projector, which it never joins
                self._consumer = Consumer(consumer_config(self._brokers, stage("projector").group, log_level=0))
            try:
                found = committed(self._consumer, places, _ANSWER_SECONDS)
            except KafkaException as cause:
                raise BrokerUnavailable(f"the offsets of the projector could not be read: {cause.args[0].str()}") from cause
        return all(one.offset >= positions[one.partition] for one in found)

    def close(self) -> None:
        """Close the connection to the broker."""
        with self._lock:
            if self._consumer is not None:
                self._consumer.close()
                self._consumer = None


def _membership(change: Any) -> Membership:
    return Membership(change.status == "ENTERED", change.sequence, change.effective_at_ms)


def _traits(text: str | None) -> Mapping[str, Any]:
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
