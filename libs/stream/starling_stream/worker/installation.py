"""Adapter: the topics and schemas of a service, looked up once at the start and checked against each other."""

from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaException

from starling_common.kafka.clients import topic_ids
from starling_common.kafka.topics import WATERMARKS
from starling_common.time.instants import wall_clock_ms
from starling_common.wire import Codec, Registry
from starling_stream.kafka.transactions import Naming
from starling_stream.model.backing_store import StageLayout
from starling_stream.model.dead_letters import dead_letter
from starling_stream.model.ports import Refusal, StateFlusher
from starling_stream.model.settings import StreamSettings
from starling_stream.state.local_store import Origin
from starling_stream.state.restore.restore import Plan


class CannotStart(Exception):
    """The installation does not fit the service; the message contains the cure."""


@dataclass(frozen=True, slots=True)
class Installation:
    """The values that stay the same while a worker lives."""

    stage: str
    topics: Sequence[str]
    settings: StreamSettings
    naming: Naming
    origin: Origin
    layout: StageLayout
    state_codec: Codec
    watermark_codec: Codec | None = None
    """For a service with sourced inputs."""

    @property
    def group(self) -> str:
        """Return the consumer group of all workers of the service."""
        return f"starling-{self.stage}"

    def restore_plan(self, partition: int, flusher: StateFlusher) -> Plan:
        """Return the plan for the restore of a task."""
        return Plan(
            brokers=self.settings.kafka.brokers,
            group=self.group,
            changelog=self.naming.changelog,
            partition=partition,
            inputs=self.topics,
            stage=self.stage,
            origin=self.origin,
            path=self.settings.state_dir / self.stage / str(partition),
            header=self.naming.changelog_header,
            decode=self._decode_state,
            flusher=flusher,
            replay_records=self.settings.backing_store_replay_records,
        )

    def _decode_state(self, value: bytes) -> tuple[int, bytes]:
        record = self.state_codec.decode(value)
        return record["version"], record["state"] or b""


def look_up(stage: str, topics: Sequence[str], settings: StreamSettings, watermarks: bool = False) -> Installation:
    """Query the registry and the broker. Blocks. `watermarks`: the inputs have sources.

    Raises: CannotStart, RegistryUnavailable, SchemaMissing.
    """
    changelog, dead_letters = f"{stage}-state-changelog", f"{stage}.dlq"
    registry = Registry(settings.registry.url)
    state_codec = registry.codec(changelog, "StateChanged")
    letters = registry.codec(dead_letters, "DeadLetter")

    def encode_refusal(refusal: Refusal) -> bytes:
        return letters.encode(dead_letter(stage, refusal, wall_clock_ms()))

    header = b"\0" + state_codec.schema_id.to_bytes(4, "big")
    naming = Naming(stage, changelog, dead_letters, header, encode_refusal)
    origin, ids = _origin(settings.kafka.brokers, topics, naming)
    layout = StageLayout(stage, origin.partitions, settings.backing_store_buckets, ids)
    sources = registry.codec(WATERMARKS, "SourceWatermark") if watermarks else None
    return Installation(stage, topics, settings, naming, origin, layout, state_codec, sources)


def _origin(brokers: str, topics: Sequence[str], naming: Naming) -> tuple[Origin, dict[str, str]]:
    """Return the origin of the states, and the ids of the changelog and the inputs."""
    try:
        found = topic_ids(brokers, [*topics, naming.changelog, naming.dead_letters])
    except KafkaException as cause:
        raise CannotStart(f"{cause.args[0].str()}: run `python -m starling_common.deploy` against {brokers}") from cause
    counts = {topic: found[topic][1] for topic in (*topics, naming.changelog)}
    if len(set(counts.values())) != 1:
        raise CannotStart(f"these topics have {counts} partitions, and must have the same number: create them again")
    topic_id, partitions = found[naming.changelog]
    return Origin(naming.changelog, topic_id, partitions), {topic: found[topic][0] for topic in counts}
