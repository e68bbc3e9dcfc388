"""Edge: how the group's partitions are dealt, as aiokafka asks for it. What is decided is in `shares`."""

from collections.abc import Callable, Iterable, Mapping

from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

from starling_common.logs import log
from starling_stream.kafka.assignment import Claim, deal, decode_claim, decode_standbys, encode_claim, encode_standbys


class StickyAssignor:
    """One object a worker, where aiokafka's own are classes: it tells what this worker has. Used by the consumer's thread."""

    name = "starling-sticky"
    version = 0

    def __init__(self, claim: Callable[[], Claim]) -> None:
        """`claim` is asked, from the consumer's thread, each time the group is joined."""
        self._claim = claim
        self.standbys: frozenset[int] = frozenset()
        """Partitions of others that this worker is to keep a copy of, by the last assignment."""

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """What this worker says when it joins."""
        self.standbys = frozenset()  # until the leader has dealt anew
        return ConsumerProtocolMemberMetadata(self.version, sorted(topics), encode_claim(self._claim()))

    def assign(
        self, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """Deal for everybody: all topics' partitions of one number go to one member."""
        topics = sorted({topic for said in members.values() for topic in said.subscription})
        known = {topic: frozenset(cluster.partitions_for_topic(topic) or ()) for topic in topics}
        for topic in (topic for topic, numbers in known.items() if not numbers):
            log(__name__).warning("topic_unknown", topic=topic)
        claims = {member: decode_claim(said.user_data) for member, said in members.items()}
        shares = deal(frozenset().union(*known.values()), claims)
        return {
            member: ConsumerProtocolMemberAssignment(
                self.version,
                [(topic, [number for number in shares[member].active if number in known[topic]]) for topic in said.subscription],
                encode_standbys(shares[member].standby),
            )
            for member, said in members.items()
        }

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        """What this worker was given."""
        self.standbys = decode_standbys(assignment.user_data)
