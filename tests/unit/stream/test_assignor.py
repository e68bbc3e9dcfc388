"""The assignor as aiokafka calls it: the partitions of one number of all topics go to one member."""

from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

from starling_stream.kafka.assignment import Claim
from starling_stream.kafka.assignor import StickyAssignor


class _Cluster:
    """The part of the client's cluster metadata that the assignor reads."""

    def __init__(self, **counts: int) -> None:
        self._counts = counts

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(self._counts[topic])) if topic in self._counts else None


def _metadata(assignor: StickyAssignor, *topics: str) -> ConsumerProtocolMemberMetadata:
    """Return the metadata after a round trip over the wire."""
    metadata: ConsumerProtocolMemberMetadata = ConsumerProtocolMemberMetadata.decode(assignor.metadata(topics).encode())
    return metadata


def _assignment_of(assignment: ConsumerProtocolMemberAssignment) -> ConsumerProtocolMemberAssignment:
    found: ConsumerProtocolMemberAssignment = ConsumerProtocolMemberAssignment.decode(assignment.encode())
    return found


def test_each_topics_partition_of_a_number_goes_to_one_member_and_its_copy_to_another() -> None:
    one, other = StickyAssignor(lambda: Claim(1, (2, 3), replicas=1)), StickyAssignor(lambda: Claim(replicas=1))
    metadata = {"one": _metadata(one, "a", "b"), "other": _metadata(other, "a", "b")}
    cluster = _Cluster(a=4, b=4)
    assigned = {member: _assignment_of(found) for member, found in one.assign(cluster, metadata).items()}
    assert [(topic, list(numbers)) for topic, numbers in assigned["one"].assignment] == [("a", [2, 3]), ("b", [2, 3])]
    assert [(topic, list(numbers)) for topic, numbers in assigned["other"].assignment] == [("a", [0, 1]), ("b", [0, 1])]
    one.on_assignment(assigned["one"])
    other.on_assignment(assigned["other"])
    assert (one.standbys, other.standbys) == (frozenset({0, 1}), frozenset({2, 3}))


def test_a_member_gets_the_topics_that_it_subscribes_to() -> None:
    newer, older = StickyAssignor(Claim), StickyAssignor(Claim)
    metadata = {"newer": _metadata(newer, "a", "b"), "older": _metadata(older, "a")}
    assigned = newer.assign(_Cluster(a=2, b=2), metadata)
    assert {member: [topic for topic, _ in found.assignment] for member, found in assigned.items()} == {
        "newer": ["a", "b"],
        "older": ["a"],
    }


def test_an_unknown_topic_is_assigned_to_no_member() -> None:
    only = StickyAssignor(Claim)
    assigned = only.assign(_Cluster(a=2), {"only": _metadata(only, "a", "unknown")})
    assert [(topic, list(numbers)) for topic, numbers in assigned["only"].assignment] == [("a", [0, 1]), ("unknown", [])]


def test_standbys_are_cleared_when_the_group_is_joined_again() -> None:
    only = StickyAssignor(Claim)
    only.standbys = frozenset({1})
    only.metadata(["a"])
    assert only.standbys == frozenset()
