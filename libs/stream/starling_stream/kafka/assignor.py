"""Edge: the group's assignor in aiokafka's interface. `assignment.py` decides."""

from collections.abc import Callable, Iterable, Mapping

from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

from starling_common.telemetry.logs import log
from starling_stream.kafka.assignment import Claim, assign_partitions, decode_claim, decode_standbys, encode_claim, encode_standbys


class StickyAssignor:
    """aiokafka's assignors are classes; this is one object a worker, because it reports the worker's own claim.

    Used by the consumer's thread.
    """

    name = "starling-sticky"
    version = 0

    def __init__(self, claim: Callable[[], Claim]) -> None:
        """`claim` is called from the consumer's thread each time the worker joins the group."""
        self._claim = claim
        self.standbys: frozenset[int] = frozenset()
        """Partitions of others of which this worker keeps a copy, by the last assignment."""

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """Return this worker's subscription and claim."""
        self.standbys = frozenset()  # until the leader has assigned again
        return ConsumerProtocolMemberMetadata(self.version, sorted(topics), encode_claim(self._claim()))

    def assign(
        self, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """Assign for all members; the partitions of one number of all topics go to one member."""
        topics = sorted({topic for metadata in members.values() for topic in metadata.subscription})
        known = {topic: frozenset(cluster.partitions_for_topic(topic) or ()) for topic in topics}
        for topic in (topic for topic, numbers in known.items() if not numbers):
            log(__name__).warning("topic_unknown", topic=topic)
        claims = {member: decode_claim(metadata.user_data) for member, metadata in members.items()}
        assignment = assign_partitions(frozenset().union(*known.values()), claims)
        return {
            member: ConsumerProtocolMemberAssignment(
                self.version,
                [
                    (topic, [number for number in assignment[member].active if number in known[topic]])
                    for topic in metadata.subscription
                ],
                encode_standbys(assignment[member].standby),
            )
            for member, metadata in members.items()
        }

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Take this worker's standby partitions from the assignment."""
        self.standbys = decode_standbys(assignment.user_data)
