"""Builds the process of the feeds from its settings. No other module of it imports both settings and concrete classes."""

import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeAlias

from confluent_kafka import OFFSET_END, Consumer
from prometheus_client import REGISTRY

from starling_campaigns.channels import SLACK, TEAMS
from starling_campaigns.digests.slack import slack_message
from starling_campaigns.digests.teams import teams_message
from starling_common.failpoints.ending import Ending
from starling_common.kafka.clients import consumer_config, offsets, partitions_of
from starling_common.kafka.folded_topic import FoldedTopic
from starling_common.kafka.group_requests import GroupAddress, GroupRequests
from starling_common.records.definitions import definitions_fold
from starling_common.retries import retrying
from starling_common.security.sealing import CURE, Sealer
from starling_common.telemetry.health import Degraded, HealthServer
from starling_common.telemetry.logs import log
from starling_common.telemetry.metrics import Metrics
from starling_common.wire import Codec, RecordReader, Registry, RegistryUnavailable
from starling_delivery.channel import Channel
from starling_delivery.channels import digests
from starling_delivery.failpoints import FAILPOINTS
from starling_delivery.feeds.attempts import Attempts
from starling_delivery.feeds.digests import DigestLane, Render
from starling_delivery.feeds.lane import Codecs, Installation, Lane, Topics
from starling_delivery.feeds.mirrors import MirrorLane
from starling_delivery.feeds.progress import READER_GROUP, ProgressView
from starling_delivery.feeds.slots import Slots
from starling_delivery.feeds.supervisor import Supervisor
from starling_delivery.feeds.targets import FeedTarget, FeedTargets, fold_feed_target
from starling_delivery.settings import FeedSettings

_REGISTRY_SECONDS: Final = 120.0
"""How long a start waits for the registry."""
_ANSWER_SECONDS: Final = 10.0

Digest: TypeAlias = tuple[Callable[[FeedSettings], Channel], Render]

DIGESTS: Final[Mapping[str, Digest]] = {
    SLACK: (digests.slack, slack_message),
    TEAMS: (digests.teams, teams_message),
}
"""Channel -> what opens it, and what renders its messages. A new channel of digests is one line here."""


class _Part(Protocol):
    """A part with threads of its own."""

    def start(self) -> None:
        """Start the part."""

    def stop(self) -> None:
        """Stop the part."""


@dataclass
class Feeds:
    """The process of the feeds, not yet started."""

    supervisor: Supervisor
    definitions: FoldedTopic[FeedTargets]
    progress: ProgressView
    attempts: Attempts
    ends: Consumer
    requests: GroupRequests
    health: HealthServer
    stopping: threading.Event

    def run(self) -> None:
        """Run until `stop`. Raises: BrokerUnavailable, KafkaException."""
        with ExitStack() as last:
            self.health.start()
            last.callback(self.health.stop)
            last.callback(self.ends.close)
            parts: Sequence[_Part] = (self.requests, self.attempts, self.definitions, self.progress)
            for part in parts:
                part.start()
                last.callback(part.stop)
            self.supervisor.run(self.stopping)

    def run_until_signal(self) -> None:
        """Run until SIGTERM or SIGINT."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stopping.set())
        self.run()


def build_feeds(settings: FeedSettings) -> Feeds:
    """Return the process. Raises: SchemaMissing, RegistryUnavailable, OSError if its port is in use, ValueError."""
    metrics, registry, brokers = Metrics(REGISTRY), Registry(settings.registry.url), settings.kafka.brokers
    targets = FeedTargets(settings.channels, _sealer(settings))
    topics = Topics(settings.membership_topic, settings.definitions_topic, settings.progress_topic, settings.dead_letter_topic)

    def codec_of(topic: str, schema: str) -> Codec:
        return retrying(_REGISTRY_SECONDS)(RegistryUnavailable, registry.codec, topic, schema)

    known = [
        codec_of(topics.membership, "SegmentMembershipChanged"),
        codec_of(topics.progress, "FeedProgressed"),
        codec_of(topics.definitions, "DefinitionChanged"),
        codec_of(topics.dead_letters, "DeadLetter"),
    ]
    definitions = FoldedTopic(
        (brokers, topics.definitions),
        codec_of(topics.definitions, "DefinitionChanged"),
        targets,
        definitions_fold(fold_feed_target),
    )
    progress = ProgressView(brokers, topics.progress, codec_of(topics.progress, "FeedProgressed"))
    own_digests = {name: found for name, found in DIGESTS.items() if name in settings.channels}
    attempts = Attempts({name: partial(opener, settings) for name, (opener, _) in own_digests.items()}, settings.timeout_seconds)
    installation = _installation(settings, topics, partial(_codecs, registry, known), progress, metrics)
    ends = Consumer(consumer_config(brokers, READER_GROUP))
    new_lane = partial(_lane, own_digests, attempts, installation)
    supervisor = Supervisor(targets, new_lane, partial(_ends, ends, topics.membership), settings.max_targets, metrics)
    supervisor.ownership = Slots(brokers, settings.group, topics.membership, settings.instance_id, supervisor.stop_all)
    requests = GroupRequests(
        GroupAddress(brokers, settings.group, topics.membership),
        settings.group_failure_seconds,
        metrics.gauge("starling_group_refused_seconds").labels(settings.group).set,
    )
    health = _health(settings, metrics, _Observed(definitions, progress, supervisor, requests, targets))
    return Feeds(supervisor, definitions, progress, attempts, ends, requests, health, threading.Event())


def _installation(
    settings: FeedSettings, topics: Topics, codecs: Callable[[], Codecs], progress: ProgressView, metrics: Metrics
) -> Installation:
    """Return what all lanes share."""
    return Installation(
        settings.kafka.brokers,
        topics,
        settings.transactional_id,
        codecs,
        progress,
        metrics,
        Ending(settings.failpoint, FAILPOINTS).passed,
        settings.allow_private_addresses,
    )


def _lane(own_digests: Mapping[str, Digest], attempts: Attempts, installation: Installation, target: FeedTarget) -> Lane:
    """Return a lane of the target's channel: of a digest, else of a mirror."""
    found = own_digests.get(target.channel)
    if found is None:
        return MirrorLane(target, installation)
    return DigestLane(target, installation, found[1], partial(attempts.send, target.channel))


class _Observed(NamedTuple):
    """The parts whose problems the health server reports."""

    definitions: FoldedTopic[FeedTargets]
    progress: ProgressView
    supervisor: Supervisor
    requests: GroupRequests
    targets: FeedTargets


def _health(settings: FeedSettings, metrics: Metrics, observed: _Observed) -> HealthServer:
    """Return the health server, not started."""
    definitions, progress, supervisor, requests, targets = observed
    return HealthServer(
        (settings.http.host, settings.http.port),
        metrics.registry,
        alive=lambda: {
            "definitions": definitions.problem(),
            "progress": progress.problem(),
            "loop": supervisor.turns.problem(),
            "requests of the group": requests.problem,
        },
        ready=lambda: {
            "definitions": definitions.problem(),
            "progress": progress.problem(),
            "secrets": _unreadable(targets),
            **supervisor.problems(),
        },
    )


def _codecs(registry: Registry, known: Sequence[Codec]) -> Codecs:
    """Return the codecs of one thread, for the schemas that were looked up at the start."""
    change, progress, definition, letter = (Codec(one.name, one.schema_id, registry.schema) for one in known)
    return Codecs(RecordReader(change), progress.encode, definition.encode, letter.encode)


def _ends(consumer: Consumer, topic: str) -> Mapping[int, int]:
    """Return the end of each partition of a topic, behind its last committed record."""
    places = [(topic, number) for number in partitions_of(consumer, topic, _ANSWER_SECONDS)]
    return {number: offset for (_, number), offset in offsets(consumer, places, OFFSET_END, _ANSWER_SECONDS).items()}


def _sealer(settings: FeedSettings) -> Sealer:
    sealer = Sealer.of(settings.secrets)
    if sealer.key_id is None:
        log(__name__).warning("no_secrets_key", consequence="targets with encrypted secrets wait", cure=CURE)
    return sealer


def _unreadable(targets: FeedTargets) -> str | None:
    found = targets.problems()
    return Degraded(f"{len(found)} targets wait: {found[0]}") if found else None
