"""Pure core: the catalogue of topics and stages, read from `schemas/avro/topics.yaml`, the only list of them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starling_common.schemas import read_document

INGEST_KINDS: Final = ("track", "identify", "page", "screen", "group", "alias")
INGEST_TOPICS: Final = tuple(f"ingest.{kind}" for kind in INGEST_KINDS)
WATERMARKS: Final = "ingest.watermarks"
OUTCOMES: Final = "ingest.outcomes"
PRODUCTS: Final = "catalog.products"
BEHAVIOUR: Final = "events.behaviour"
PROFILE: Final = "events.profile"
DELIVERY: Final = "events.delivery"
AGGREGATES: Final = "profiles.aggregates"
SEGMENT_DEFINITIONS: Final = "segments.definitions"
TRAIT_DEFINITIONS: Final = "computed-traits.definitions"
WEBHOOK_DEFINITIONS: Final = "webhooks.definitions"
LIST_DEFINITIONS: Final = "lists.definitions"
DELIVERY_DEFINITIONS: Final = "delivery.definitions"
LAKE_DEFINITIONS: Final = "lake.definitions"
LIST_MEMBERSHIP: Final = "lists.membership"
REPEATABLE_STAGES: Final = ("projector", "projector-events")
"""Stages that may process their input again from its start: their writes have no effect the second time."""
ACCOUNT_ANSWERS: Final = "accounts.answers"
ACCOUNT_TALLIES: Final = "accounts.tallies"
MEMBERSHIP: Final = "segments.membership"
MEMBERSHIP_STATE: Final = "segments.membership-state"
PROGRESS: Final = "segments.progress"
SEGMENT_CLOCK: Final = "segments.clock"
BACKFILL_STATES: Final = "segments.backfill-states"
BACKFILLS: Final = "segments.backfills"
CLOCK: Final = "stream.clock"
CONSENT: Final = "consent.changes"
SUPPRESSIONS: Final = "suppressions"
BROADCASTS: Final = "messenger.broadcasts"
BROADCAST_PROGRESS: Final = "broadcasts.progress"
CAMPAIGN_PROGRESS: Final = "campaigns.progress"
MESSENGER_PROGRESS: Final = "messenger.progress"
FEED_PROGRESS: Final = "feeds.progress"
DELIVERY_RETRY: Final = "delivery.retry"
DELIVERY_DEAD_LETTERS: Final = "delivery.dlq"
AUDIENCE_RETRY: Final = "audience.retry"
REQUESTS: Final = "delivery.requests"
BULK: Final = "delivery.bulk"
TOKENS: Final = "access.tokens"
WRITE_KEYS: Final = "access.write-keys"
AUDIT: Final = "audit.log"


def request_topic(channel: str) -> str:
    """Return the topic of the requests of a channel of campaigns."""
    return f"{REQUESTS}.{channel}"


def bulk_topic(channel: str) -> str:
    """Return the topic of the requests of broadcasts: those of triggers never wait behind them."""
    return f"{BULK}.{channel}"


def audience_group(workspace: str, key: str) -> str:
    """Return the consumer group of a target of audience sync. The dot is in no workspace and in no key."""
    return f"starling-audience-{workspace}.{key}"


MAX_RECORD_BYTES: Final = 8 * 1024 * 1024
"""The largest `max_record` of any topic."""

_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class Topic:
    """The required configuration of one topic. `retention_ms` is -1 for no limit; `cleanup` is `delete` or `compact`.

    `compaction_lag_ms` is the least age of a record before compaction may remove it.
    """

    name: str
    schema: str
    partitions: int
    profile_keyed: bool
    cleanup: str
    retention_ms: int
    compatibility: str
    compaction_lag_ms: int = 6 * 3_600_000
    """A restore replays the tail of a changelog. Compaction must not remove records of that tail while it is read."""
    max_record_bytes: int | None = None
    """The largest record that the broker accepts; None for the broker's default, 1 MiB."""
    broker_timestamps: bool = False
    """The timestamp of a record is the time of its append at the broker, not that of its producer."""
    ahead_ms: int | None = None
    """By how much a timestamp may be ahead of the broker's clock; None for the broker's default, an hour."""
    segment_bytes: int | None = None
    """The size of a log segment; None for the broker's default, 1 GiB. Compaction ignores the last segment."""

    @property
    def subject(self) -> str:
        """The registry's subject for the values of this topic."""
        return f"{self.name}-value"


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of the pipeline: a consumer group and its input topics. An installation may omit an optional stage.

    A delayed stage leaves records in its inputs until they are due. They are no lag.
    """

    name: str
    group: str
    inputs: tuple[str, ...]
    optional: bool
    delayed: bool = False


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All topics by name, and all stages in processing order."""

    topics: Mapping[str, Topic]
    stages: Sequence[Stage]

    @property
    def profile_partitions(self) -> int:
        """The number of partitions of every profile-keyed topic."""
        return next(topic.partitions for topic in self.topics.values() if topic.profile_keyed)


def load_catalogue(profile_partitions: int | None = None) -> Catalogue:
    """Read the catalogue; `profile_partitions` overrides the file's count, which suits a laptop.

    Raises: ValueError that names the topic and the error.
    """
    document = read_document("topics.yaml")
    count = profile_partitions or int(document["partitions"]["profile"])
    topics = {name: _topic(name, entry, count) for name, entry in document["topics"].items()}
    stages = tuple(
        Stage(
            entry["name"],
            entry["group"],
            tuple(entry["inputs"]),
            bool(entry.get("optional", False)),
            bool(entry.get("delayed", False)),
        )
        for entry in document["stages"]
    )
    unknown = sorted({name for stage in stages for name in stage.inputs} - topics.keys())
    if unknown:
        raise ValueError(f"topics.yaml: stages read unknown topics {', '.join(unknown)}")
    return Catalogue(topics, stages)


def stage(name: str) -> Stage:
    """Return the stage of that name. Raises: KeyError."""
    for candidate in load_catalogue().stages:
        if candidate.name == name:
            return candidate
    raise KeyError(name)


def _topic(name: str, entry: Mapping[str, Any], profile_partitions: int) -> Topic:
    keyed = entry["partitions"] == "profile"
    cleanup = str(entry.get("cleanup", "delete"))
    if cleanup not in {"delete", "compact"}:
        raise ValueError(f"topics.yaml: {name}: cleanup: expected delete or compact, got {cleanup!r}")
    return Topic(
        name=name,
        schema=str(entry["schema"]),
        partitions=profile_partitions if keyed else int(entry["partitions"]),
        profile_keyed=keyed,
        cleanup=cleanup,
        retention_ms=_retention_ms(name, str(entry.get("retention", "forever"))),
        compatibility=str(entry.get("compatibility", "FULL_TRANSITIVE")),
        compaction_lag_ms=_retention_ms(name, str(entry.get("compaction_lag", "6h"))),
        max_record_bytes=_size_bytes(name, entry.get("max_record")),
        broker_timestamps=entry.get("timestamps", "producer") == "broker",
        ahead_ms=_retention_ms(name, entry["ahead"]) if "ahead" in entry else None,
        segment_bytes=None if "segment" not in entry else int(str(entry["segment"]).removesuffix("MiB")) * 1024 * 1024,
    )


def _retention_ms(topic: str, text: str) -> int:
    if text == "forever":
        return -1
    found = re.fullmatch(r"(\d+)([smhd])", text)
    if found is None:
        raise ValueError(f"topics.yaml: {topic}: retention: expected a value such as 7d or forever, got {text!r}")
    return int(found[1]) * _UNIT_MS[found[2]]


def _size_bytes(topic: str, text: str | None) -> int | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d+)MiB", text)
    size = int(found[1]) * 1024 * 1024 if found else MAX_RECORD_BYTES + 1
    if size > MAX_RECORD_BYTES:
        raise ValueError(
            f"topics.yaml: {topic}: max_record: expected e.g. 2MiB, at most {MAX_RECORD_BYTES // 1024 // 1024}MiB, got {text!r}"
        )
    return size
