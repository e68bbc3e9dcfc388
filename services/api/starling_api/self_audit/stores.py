"""Adapter: the tables and topics that the self-audit compares with the states."""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException, TopicPartition

from starling_api.self_audit.comparison import Recorded
from starling_api.self_audit.run import User, Window
from starling_common.cassandra.database import Database
from starling_common.cassandra.read_models import member_bucket, user_partition
from starling_common.kafka.clients import BrokerUnavailable, committed, consumer_config, offsets, watermarks
from starling_common.kafka.topic_range import range_consumer, read_range
from starling_common.kafka.topics import MEMBERSHIP, MEMBERSHIP_STATE, load_catalogue
from starling_common.wire import Codec, Registry

_ENTERED: Final = "ENTERED"
_USER: Final = "workspace = ? AND source_partition = ? AND bucket = ? AND user_id = ?"
_MEMBERSHIPS: Final = f"SELECT segment_key, change FROM {{ks}}.user_memberships WHERE {_USER}"  # noqa: S608 - constants
_MEMBER: Final = "SELECT sequence FROM {ks}.segment_members WHERE workspace = ? AND segment_key = ? AND bucket = ? AND user_id = ?"
_GROUP: Final = "starling-api"
"""The client library requires a group id. The consumer neither joins the group nor commits."""
_STAGE: Final = "projector"
_TIMEOUT_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.2


class CassandraMembershipRows:
    """The rows of the projector. Every method may raise DatabaseUnavailable."""

    def __init__(self, database: Database, partitions: int) -> None:
        """`partitions`: number of partitions of the topics keyed by profile."""
        self._database = database
        self._partitions = partitions

    def memberships(self, workspace: str, users: Sequence[str]) -> Sequence[Mapping[str, Recorded]]:
        """Return for each user the present and former memberships by segment key."""
        keys = [(*user_partition(workspace, user, self._partitions), user) for user in users]
        return [
            {row["segment_key"]: Recorded(row["change"].status == _ENTERED, row["change"].sequence) for row in rows}
            for rows in self._database.read_each(_MEMBERSHIPS, keys)
        ]

    def members(self, workspace: str, pairs: Sequence[tuple[str, str]]) -> Sequence[int | None]:
        """Return for each (user id, segment key) the sequence of the member's row; None without a row."""
        keys = [(workspace, key, member_bucket(user), user) for user, key in pairs]
        return [rows[0]["sequence"] if rows else None for rows in self._database.read_each(_MEMBER, keys)]


class FeedStateTopic:
    """`segments.membership-state`. Each call opens a consumer, because a run is rare. May raise BrokerUnavailable."""

    def __init__(self, brokers: str, registry: Registry, most: int, rng: random.Random) -> None:
        """`most`: maximum length of a range, in offsets."""
        self._brokers = brokers
        self._registry = registry
        self._most = most
        self._rng = rng
        self._codec: Codec | None = None

    def window(self, partition: int) -> Window:
        """Return the whole partition, or a random range of a long one."""
        with _asking(lambda: range_consumer(self._brokers, _GROUP, log_level=0)) as consumer:
            first, end = watermarks(consumer, MEMBERSHIP_STATE, partition, _TIMEOUT_SECONDS)
        if end - first <= self._most:
            return Window(partition, OFFSET_BEGINNING, None)
        start = self._rng.randrange(first, end - self._most + 1)
        return Window(partition, start, start + self._most)

    def read(self, window: Window) -> Mapping[User, Mapping[str, Recorded]]:
        """Return the newest record of each user and segment in the range.

        Raises: RegistryUnavailable, SchemaMissing, DecodeError.
        """
        place, newest = (MEMBERSHIP_STATE, window.partition), dict[bytes, bytes]()
        ends = None if window.end is None else {place: window.end}
        with _asking(lambda: range_consumer(self._brokers, _GROUP, log_level=0)) as consumer:
            for messages in read_range(consumer, {place: window.start}, ends):
                newest |= {message.key() or b"": message.value() or b"" for message in messages}
        if self._codec is None:
            self._codec = self._registry.codec(MEMBERSHIP_STATE, "SegmentMembershipChanged")
        found: dict[User, dict[str, Recorded]] = {}
        for value in filter(None, newest.values()):
            record = self._codec.decode(value)
            recorded = Recorded(record["status"] == _ENTERED, record["sequence"])
            found.setdefault((record["workspace"], record["user_id"]), {})[record["segment_key"]] = recorded
        return found


class ProjectorPosition:
    """The committed offset of the projector in the feed, and its end. May raise BrokerUnavailable."""

    def __init__(self, brokers: str, timeout_seconds: float, wait: Callable[[float], bool]) -> None:
        """`timeout_seconds`: how long the projector is awaited; `wait`: sleeps for seconds, and returns whether to stop."""
        group = next(stage.group for stage in load_catalogue().stages if stage.name == _STAGE)
        # The end includes open transactions: a change whose commit is not visible yet is awaited too.
        self._config = consumer_config(brokers, group, **{"isolation.level": "read_uncommitted", "log_level": 0})
        self._timeout_seconds = timeout_seconds
        self._wait = wait

    def awaits(self, partition: int) -> bool:
        """Wait until the projector has written every present membership change; return False if that takes too long."""
        place = (MEMBERSHIP, partition)
        deadline = time.monotonic() + self._timeout_seconds
        with _asking(lambda: Consumer(self._config)) as consumer:
            end = offsets(consumer, [place], OFFSET_END, _TIMEOUT_SECONDS)[place]
            while committed(consumer, [TopicPartition(*place)], _TIMEOUT_SECONDS)[0].offset < end:
                if time.monotonic() > deadline or self._wait(_POLL_SECONDS):
                    return False
        return True


@contextmanager
def _asking(opened: Callable[[], Consumer]) -> Iterator[Consumer]:
    consumer = opened()
    try:
        yield consumer
    except KafkaException as cause:
        raise BrokerUnavailable(f"{MEMBERSHIP_STATE}: {cause}") from cause
    finally:
        consumer.close()
