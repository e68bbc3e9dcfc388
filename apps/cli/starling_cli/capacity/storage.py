"""Pure core: bytes of topics, tables and local stores, and bytes a second between the parts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from starling_cli.capacity.assumptions import COMPACTION_FACTOR, MEMBERSHIP_SHARE
from starling_cli.capacity.cpu import CHANGE_TOPICS, SEGMENTER_CHANGELOG, changes_of, interpolated
from starling_cli.capacity.inputs import Inputs, number
from starling_cli.capacity.rates import Rates
from starling_common.kafka.topics import BEHAVIOUR, MEMBERSHIP_STATE, Catalogue, Topic

NORMALIZER_CHANGELOG: Final = "normalizer-state-changelog"
STATEFUL: Final[Mapping[str, str]] = {"normalizer": NORMALIZER_CHANGELOG, "segmenter": SEGMENTER_CHANGELOG}
"""Stage with local stores -> its changelog."""

_DAY_SECONDS: Final = 86_400


@dataclass(frozen=True, slots=True)
class Stored:
    """Bytes on all disks of one topic, table or local store. `unit_bytes`: of an event in a topic, of a row elsewhere."""

    store: str
    name: str
    unit_bytes: float
    kept: str
    disk_bytes: float
    formula: str


@dataclass(frozen=True, slots=True)
class Flow:
    """Bytes a second at the peak, from one part to another."""

    name: str
    bytes_per_second: float
    formula: str


class Storage:
    """What the inputs store and send."""

    def __init__(self, inputs: Inputs, rates: Rates, catalogue: Catalogue) -> None:
        self._inputs = inputs
        self._rates = rates
        self._topics: Sequence[Topic] = [catalogue.topics[name] for name in _measured_topics(rates) if name in catalogue.topics]
        self._readers = {
            topic.name: [
                stage.name
                for stage in catalogue.stages
                if topic.name in stage.inputs and (not stage.optional or (stage.name == "profiles" and inputs.traits))
            ]
            for topic in self._topics
        }

    @property
    def memberships(self) -> float:
        """Rows of memberships a user."""
        given = self._inputs.memberships
        return max(1.0, self._inputs.segments * MEMBERSHIP_SHARE) if given is None else given

    @property
    def average_rps(self) -> float:
        """Events/s over days."""
        return self._inputs.rps if self._inputs.average_rps is None else self._inputs.average_rps

    def record_bytes(self, topic: str) -> float:
        """Return the bytes of a record. The state of a user in the segmenter grows with the number of segments."""
        size = self._measured(topic, "bytes") / self._measured(topic, "records")
        return size + self._state_growth() if topic == SEGMENTER_CHANGELOG else size

    def event_bytes(self, topic: str) -> float:
        """Return the bytes that an event adds to a topic, on one broker."""
        size = self._measured(topic, "bytes")
        if topic in CHANGE_TOPICS:
            return size * changes_of(self._inputs, self._rates) / self._rates["platform/changes_an_event"]
        return size + self._measured(topic, "records") * self._state_growth() if topic == SEGMENTER_CHANGELOG else size

    def kafka(self) -> Iterator[Stored]:
        """Yield the disk of each topic on all brokers, headroom included."""
        for topic in self._topics:
            if self._measured(topic.name, "bytes"):
                yield self._topic(topic)

    def cassandra(self) -> Iterator[Stored]:
        """Yield the disk of each large table on all nodes, with room for compaction."""
        users, copies = self._inputs.users, self._inputs.replication
        days = self._inputs.history_days
        memberships = users * self.memberships
        rows = (
            ("states", users, self.record_bytes(SEGMENTER_CHANGELOG) + self.record_bytes(NORMALIZER_CHANGELOG), "one a user"),
            ("user_profiles", users, self.record_bytes(NORMALIZER_CHANGELOG), "one a user"),
            ("user_memberships", memberships, self.record_bytes(MEMBERSHIP_STATE), f"{number(self.memberships)} a user"),
            ("segment_members", memberships, self.record_bytes(MEMBERSHIP_STATE), f"{number(self.memberships)} a user"),
            ("user_history", self.average_rps * days * _DAY_SECONDS, self.record_bytes(BEHAVIOUR), f"{days} days"),
        )
        for table, count, size, kept in rows if days else rows[:-1]:
            formula = f"{number(count)} rows * {number(size)} B * {copies} copies * {number(COMPACTION_FACTOR)}"
            yield Stored("Cassandra", table, size, kept, count * size * copies * COMPACTION_FACTOR, formula)

    def local_stores(self) -> Iterator[Stored]:
        """Yield the disk of the local stores of each stage, all workers together, headroom included."""
        free = 1 - self._inputs.headroom
        for stage, changelog in STATEFUL.items():
            size = self.record_bytes(changelog)
            disk = self._inputs.users * size * COMPACTION_FACTOR / free
            formula = f"{number(self._inputs.users)} users * {number(size)} B * {number(COMPACTION_FACTOR)} / {number(free)}"
            yield Stored("RocksDB", stage, size, "one a user", disk, formula)

    def flows(self) -> Iterator[Flow]:
        """Yield the traffic at the peak."""
        rps, copies = self._inputs.rps, self._inputs.replication
        item = self._rates["ingest/item_bytes"]
        yield Flow("senders → ingest", rps * item, f"{number(rps)} events/s * {number(item)} B an item")
        sizes = {topic.name: self.event_bytes(topic.name) for topic in self._topics}
        produced = sum(sizes.values())
        yield Flow("services → Kafka", rps * produced, f"{number(rps)} events/s * {number(produced)} B in all topics")
        formula = f"{number(rps)} events/s * {number(produced)} B * {copies - 1} further copies"
        yield Flow("between brokers", rps * produced * (copies - 1), formula)
        read = sum(size * len(self._readers[name]) for name, size in sizes.items())
        yield Flow(
            "Kafka → services", rps * read, f"{number(rps)} events/s * {number(read)} B, each topic once for each of its stages"
        )
        written = (
            self.record_bytes(BEHAVIOUR)
            + 2 * self.event_bytes(MEMBERSHIP_STATE)
            + sum(self.event_bytes(changelog) for changelog in STATEFUL.values())
        )
        formula = f"{number(rps)} events/s * {number(written)} B of history, memberships twice, and states * {copies} copies"
        yield Flow("services → Cassandra", rps * written * copies, formula)

    def _measured(self, topic: str, figure: str) -> float:
        return self._rates[f"platform/topics/{topic}/{figure}"]

    def _state_growth(self) -> float:
        curve = self._rates.points("state_bytes")
        return interpolated(curve, self._inputs.segments) - interpolated(curve, self._rates["platform/options/segments"])

    def _topic(self, topic: Topic) -> Stored:
        size, free, copies = self.event_bytes(topic.name), 1 - self._inputs.headroom, self._inputs.replication
        average = number(self.average_rps)
        if topic.cleanup == "delete":
            days = self._inputs.retention_days.get(topic.name, topic.retention_ms / 1000 / _DAY_SECONDS)
            kept, live = f"{number(days)} days", self.average_rps * size * days * _DAY_SECONDS
            formula = f"{average} events/s * {number(size)} B * {number(days)} days"
        else:
            keys, hours = self._keys(topic.name), topic.compaction_lag_ms / 3_600_000
            record = self.record_bytes(topic.name)
            kept = "last of each key"
            live = keys * record * COMPACTION_FACTOR + self.average_rps * size * hours * 3600
            formula = f"{number(keys)} keys * {number(record)} B * {number(COMPACTION_FACTOR)}"
            formula += f" + {average} events/s * {number(size)} B * {number(hours)} h"
        return Stored("Kafka", topic.name, size, kept, live * copies / free, f"({formula}) * {copies} copies / {number(free)}")

    def _keys(self, topic: str) -> float:
        """Return the keys of a compacted topic; those of the other topics are few: one a partition or process."""
        if topic == MEMBERSHIP_STATE:
            return self._inputs.users * self.memberships
        return self._inputs.users if topic in STATEFUL.values() else 0.0


def _measured_topics(rates: Rates) -> Sequence[str]:
    names = (name.rpartition("/") for name in rates.group("platform/topics"))
    return [topic for topic, _, figure in names if figure == "bytes"]
