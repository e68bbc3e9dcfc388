"""Every stage with fakes for broker, registry and database: one refused record in, its dead letter out."""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast

import pyarrow as pa
import pytest
from confluent_kafka import Message, Producer
from prometheus_client import CollectorRegistry

from starling_common.headers import Headers, header
from starling_common.kafka.topics import (
    BEHAVIOUR,
    CAMPAIGN_PROGRESS,
    CLOCK,
    DELIVERY,
    MEMBERSHIP,
    MESSENGER_PROGRESS,
    PROFILE,
    SUPPRESSIONS,
    load_catalogue,
)
from starling_common.settings import Clock, Http, Kafka, SchemaRegistry
from starling_common.telemetry.metrics import Metrics
from starling_common.time.instants import wall_clock_ms
from starling_common.wire import Codec, Registry, UnknownSchema
from starling_delivery.agents import MembershipInput
from starling_delivery.channel import Answer, Impossible
from starling_delivery.channel import Message as ChannelMessage
from starling_delivery.outbox import Outbox
from starling_delivery.settings import Settings
from starling_items.work import StageDependencies
from starling_messages.campaigns import Campaigns
from starling_messenger.agents import Messenger, Sources
from starling_messenger.agents import describe as describe_messenger
from starling_messenger.progress import ProgressReporter
from starling_messenger.records import Emitter, Formats
from starling_normalizer.agents import Normalizer, NormalizerDependencies, normalizer_service
from starling_projector.agents import Limits, Parts, Projector
from starling_projector.dead_letters import DeadLetters
from starling_projector.decoder import Decoder
from starling_projector.source import Polled, Source
from starling_projector.store import Store
from starling_segmenter.agents import Segmenter, describe
from starling_segmenter.counts import Counts
from starling_segmenter.records.formats import build_formats
from starling_segmenter.switching.definition_log import DefinitionLog
from starling_spark.jobs.profiles.definitions.entries import first_entries
from starling_spark.jobs.profiles.definitions.in_force import Definition
from starling_spark.jobs.profiles.fold.matches import ChunkBuilder
from starling_spark.jobs.profiles.query import transform as profiles
from starling_spark.kafka import dead_letters as spark_letters
from starling_spark.kafka.codec import Refusal, TopicSchema, Wire
from starling_spark.kafka.decoding import Reading, row_reader
from starling_stream.model.dead_letters import dead_letter, dead_letter_headers
from starling_stream.model.processor import Service
from starling_stream.testing import Fed, MemoryTask
from tests.unit.delivery.making import MemoryConsumer, dispatcher, run_agent, targets

ARRIVED_MS: Final = 1_767_225_600_123
KEY: Final = b"acme/ada"
PARTITION: Final = 3
OFFSET: Final = 17


class Letter(NamedTuple):
    """A dead letter as published. `headers` are those of the Kafka record itself."""

    record: Mapping[str, Any]
    key: bytes | None
    headers: Mapping[str, str | None]
    timestamp_ms: int


Refuse = Callable[[bytes, Headers], Letter]
"""Gives a stage one record with this value and these headers; returns its dead letter."""


def _unknown(schema_id: int) -> str:
    raise UnknownSchema(schema_id)


_SCHEMAS = {topic.schema for topic in load_catalogue().topics.values()}
_IDS = {name: number for number, name in enumerate(sorted(_SCHEMAS), start=1)}


def codec_of(topic: str) -> Codec:
    name = load_catalogue().topics[topic].schema
    return Codec(name, _IDS[name], _unknown)


class MemoryRegistry:
    """Stands in for the registry."""

    def codec(self, _topic: str, name: str) -> Codec:
        return Codec(name, _IDS[name], _unknown)


def _letter(value: bytes, key: bytes | None, headers: Headers, timestamp_ms: int) -> Letter:
    names = ("correlation_id", "traceparent", "produced_by")
    return Letter(codec_of("projector.dlq").decode(value), key, {name: header(headers, name) for name in names}, timestamp_ms)


@dataclass
class Inbound:
    """A message as the Kafka client returns it."""

    data: bytes
    own_headers: Headers

    def topic(self) -> str:
        return MEMBERSHIP

    def partition(self) -> int:
        return PARTITION

    def offset(self) -> int:
        return OFFSET

    def key(self) -> bytes:
        return KEY

    def value(self) -> bytes:
        return self.data

    def headers(self) -> Headers:
        return self.own_headers

    def timestamp(self) -> tuple[int, int]:
        return 1, ARRIVED_MS

    def error(self) -> None:
        return None


@dataclass
class MemoryProducer:
    """Stands in for a producer: keeps the dead letters."""

    letters: list[Letter] = field(default_factory=list)
    reports: list[Callable[..., None]] = field(default_factory=list)

    def produce(
        self,
        topic: str,
        value: bytes,
        key: bytes,
        *,
        headers: Headers,
        timestamp: int = -1,
        on_delivery: Callable[..., None] = lambda _error, _message: None,
    ) -> None:
        if topic.endswith(".dlq"):
            self.letters.append(_letter(value, key, headers, timestamp))
        self.reports.append(on_delivery)

    def flush(self, seconds: float) -> int:
        return self.poll(seconds)

    def poll(self, _seconds: float) -> int:
        reports, self.reports = self.reports, []
        for report in reports:
            report(None, None)
        return 0


def _stream(service: Service[Any], topic: str) -> Refuse:
    def refuse(value: bytes, headers: Headers) -> Letter:
        task = MemoryTask(service, PARTITION)
        task.feed_all([Fed(topic, KEY, value, headers, ARRIVED_MS)])
        [refusal] = task.refusals
        # As in `Transactions`, which needs a broker.
        encoded = codec_of(f"{service.stage}.dlq").encode(dead_letter(service.stage, refusal, wall_clock_ms()))
        return _letter(encoded, refusal.record.key, dead_letter_headers(service.stage, refusal), refusal.record.received_at // 1000)

    return refuse


def normalizer() -> Refuse:
    codecs = {topic: codec_of(topic) for topic in load_catalogue().topics}
    dependencies = NormalizerDependencies(lambda _topic, _outcome: None, wall_clock_ms, lambda: None)
    stage_dependencies = StageDependencies(Clock.WALL, lambda _workspace, _product: None)
    return _stream(normalizer_service(Normalizer(codecs, stage_dependencies, dependencies), Clock.WALL), "ingest.track")


def segmenter() -> Refuse:
    formats, definitions = build_formats(MemoryRegistry().codec), DefinitionLog()
    counts = Counts(Metrics(CollectorRegistry()))
    return _stream(describe(Segmenter(formats, definitions, counts, Clock.WALL, lambda: 0)), PROFILE)


def messenger() -> Refuse:
    codecs = {topic: codec_of(topic) for topic in load_catalogue().topics}
    formats = Formats(codecs["delivery.requests.email"], codecs[DELIVERY], codecs[CAMPAIGN_PROGRESS], codecs[SUPPRESSIONS])
    sources = Sources(lambda: (Campaigns(), 0), lambda *_address: None)
    progress = ProgressReporter(codecs[MESSENGER_PROGRESS], lambda: 0)
    found = Messenger(codecs.__getitem__, sources, Emitter(formats), progress, Clock.WALL, lambda: 0)
    return _stream(describe_messenger(found), PROFILE)


class _Source:
    """A topic with one record."""

    problem = None

    def __init__(self, message: Inbound) -> None:
        self.message = message
        self.projector: Projector | None = None

    def start(self) -> None:
        return None

    def check(self, _stage: str) -> None:
        return None

    def partitions(self, _topic: str) -> int:
        return 1

    def topic_ids(self) -> dict[str, str]:
        return dict.fromkeys(load_catalogue().topics, "id")

    def poll(self, _wait_seconds: float, _most: int, _linger_seconds: float) -> Polled:
        return Polled([cast("Message", self.message)])

    def commit(self, _limits: object) -> None:
        assert self.projector is not None
        self.projector.stop()

    def committed(self, _topic: str, _partitions: object) -> dict[int, int]:
        return {}

    def ends(self, _topic: str, _partitions: object) -> dict[int, int]:
        return {}

    def close(self) -> None:
        return None


class _Store:
    """A database that keeps nothing."""

    def incarnations(self, topic_ids: dict[str, str]) -> dict[str, int]:
        return dict.fromkeys(topic_ids, 0)

    def write_rows(self, _rows: object) -> dict[str, int]:
        return {}

    def tallies(self, _keys: object) -> dict[Any, Any]:
        return {}

    def step_tallies(self, _keys: object) -> dict[Any, Any]:
        return {}

    def write_step_tallies(self, _tallies: object) -> None:
        """Nothing."""

    def write_tallies(self, _tallies: object) -> None:
        return None


def projector() -> Refuse:
    def refuse(value: bytes, headers: Headers) -> Letter:
        source, producer, registry = _Source(Inbound(value, headers)), MemoryProducer(), cast("Registry", MemoryRegistry())
        metrics = Metrics(CollectorRegistry())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("starling_projector.dead_letters.Producer", lambda _config: producer)
            letters = DeadLetters("127.0.0.1:1", registry, metrics)
            decoder, store = Decoder(registry, [MEMBERSHIP]), cast("Store", _Store())
            source.projector = Projector(
                Parts(cast("Source", source), decoder, store, letters, metrics), Limits(100, 0.0), "projector"
            )
            source.projector.run()
        [letter] = producer.letters
        return letter

    return refuse


class _Refusing:
    """A channel that can deliver nothing."""

    name = "webhook"

    async def send(self, _message: ChannelMessage) -> Answer:
        return Impossible("the address is closed")

    async def close(self) -> None:
        return None


def delivery() -> Refuse:
    def refuse(value: bytes, headers: Headers) -> Letter:
        producer, metrics = MemoryProducer(), Metrics(CollectorRegistry())
        settings = Settings(
            kafka=Kafka(brokers="127.0.0.1:1"),
            registry=SchemaRegistry(url="http://127.0.0.1:1"),
            http=Http(port=1),
            instance_id="delivery-0",
            retry_topic="another.retry",
        )
        known = targets()
        for target in list(known.of("default")):
            known.apply({**_definition(target.document), "workspace": "acme"})
        outbox = Outbox(settings, cast("Producer", producer), cast("Registry", MemoryRegistry()), known, metrics)
        source = MembershipInput([MEMBERSHIP], codec_of(MEMBERSHIP).decode, known, "webhook")
        asyncio.run(run_agent(source, MemoryConsumer([Inbound(value, headers)]), dispatcher(_Refusing(), known, outbox), outbox))
        [letter] = producer.letters
        return letter

    return refuse


def _definition(document: Mapping[str, Any]) -> dict[str, Any]:
    return {"key": document["key"], "version": 1, "action": "DEFINED", "document": json.dumps(dict(document))}


def _raw(topic: str, value: bytes, headers: Headers) -> dict[str, Any]:
    rows = [{"key": name, "value": content} for name, content in headers]
    return {
        "topic": topic, "partition": PARTITION, "offset": OFFSET, "timestamp_ms": ARRIVED_MS, "key": KEY, "value": value,
        "headers": rows,
    }  # fmt: skip


def _wire(stage: str) -> Wire:
    names = {topic: load_catalogue().topics[topic].schema for topic in (BEHAVIOUR, CLOCK, f"{stage}.dlq", "profiles.aggregates")}
    return Wire("http://127.0.0.1:1", tuple(TopicSchema(topic, name, _IDS[name]) for topic, name in names.items()))


_HEADERS_SHAPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_SHAPE = pa.schema(
    [
        ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("timestamp_ms", pa.int64()),
        ("key", pa.binary()), ("value", pa.binary()), ("headers", _HEADERS_SHAPE),
    ]
)  # fmt: skip


def profiles_job() -> Refuse:
    spent = json.dumps({"event": "Order Completed", "measure": {"sum": "revenue"}, "within": "30d"})
    topics = profiles.Topics(BEHAVIOUR, CLOCK, "profiles.aggregates", "profiles.dlq")
    job = profiles.Job(topics, _wire("profiles"), Clock.WALL, first_entries((Definition("acme", "spent", 3, spent, ()),)))

    def refuse(value: bytes, headers: Headers) -> Letter:
        batch = pa.RecordBatch.from_pylist([_raw(BEHAVIOUR, value, headers)], _SHAPE)
        plans = profiles.plans_of(job)
        chunks = profiles.chunks_of(batch, ChunkBuilder(profiles.decoders_of(job, plans), plans))
        [refusal] = [refusal for chunk in chunks.values() for refusal in chunk.refused]
        published: Headers = [("correlation_id", refusal.correlation_id.encode())]
        return _letter(refusal.value, refusal.key, published, refusal.timestamp_ms)

    return refuse


def views_job() -> Refuse:
    wire = _wire("views")

    def refuse(value: bytes, headers: Headers) -> Letter:
        refused = row_reader(Reading.plain(wire, BEHAVIOUR))(value)
        assert isinstance(refused, Refusal)
        shape = pa.schema([*_SHAPE, ("refused", pa.struct([("code", pa.string()), ("message", pa.string())]))])
        reason = {"code": refused.code, "message": refused.message}
        batch = pa.RecordBatch.from_pylist([{**_raw(BEHAVIOUR, value, headers), "refused": reason}], shape)
        [[row]] = [made.to_pylist() for made in spark_letters._letters("views", "views.dlq", wire, "")([batch])]
        assert row["topic"] == "views.dlq"
        return _letter(row["value"], row["key"], [("correlation_id", row["correlation_id"].encode())], row["timestamp_ms"])

    return refuse


STAGES: Final[Mapping[str, Callable[[], Refuse]]] = {
    "normalizer": normalizer,
    "segmenter": segmenter,
    "messenger": messenger,
    "projector": projector,
    "delivery": delivery,
    "profiles": profiles_job,
    "views": views_job,
}
"""The stages that read from Kafka."""
