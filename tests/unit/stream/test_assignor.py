"""The assignor as the consumer's client asks it: all topics' partitions of a number to one member."""

from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

from starling_stream.kafka.assignment import Claim
from starling_stream.kafka.assignor import StickyAssignor


class _Cluster:
    """What the assignor asks of the client's view of the cluster."""

    def __init__(self, **counts: int) -> None:
        self._counts = counts

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(self._counts[topic])) if topic in self._counts else None


def _told(assignor: StickyAssignor, *topics: str) -> ConsumerProtocolMemberMetadata:
    """Over the wire and back."""
    said: ConsumerProtocolMemberMetadata = ConsumerProtocolMemberMetadata.decode(assignor.metadata(topics).encode())
    return said


def _given(assignment: ConsumerProtocolMemberAssignment) -> ConsumerProtocolMemberAssignment:
    found: ConsumerProtocolMemberAssignment = ConsumerProtocolMemberAssignment.decode(assignment.encode())
    return found


def test_each_topics_partition_of_a_number_goes_to_one_member_and_its_copy_to_another() -> None:
    one, other = StickyAssignor(lambda: Claim(1, (2, 3), replicas=1)), StickyAssignor(lambda: Claim(replicas=1))
    said = {"one": _told(one, "a", "b"), "other": _told(other, "a", "b")}
    cluster = _Cluster(a=4, b=4)
    dealt = {member: _given(found) for member, found in one.assign(cluster, said).items()}
    assert [(topic, list(numbers)) for topic, numbers in dealt["one"].assignment] == [("a", [2, 3]), ("b", [2, 3])]
    assert [(topic, list(numbers)) for topic, numbers in dealt["other"].assignment] == [("a", [0, 1]), ("b", [0, 1])]
    one.on_assignment(dealt["one"])
    other.on_assignment(dealt["other"])
    assert (one.standbys, other.standbys) == (frozenset({0, 1}), frozenset({2, 3}))


def test_a_member_is_given_the_topics_that_it_asked_for() -> None:
    newer, older = StickyAssignor(Claim), StickyAssignor(Claim)
    said = {"newer": _told(newer, "a", "b"), "older": _told(older, "a")}
    dealt = newer.assign(_Cluster(a=2, b=2), said)
    assert {member: [topic for topic, _ in found.assignment] for member, found in dealt.items()} == {
        "newer": ["a", "b"],
        "older": ["a"],
    }


def test_a_topic_that_nobody_knows_is_nobodys() -> None:
    only = StickyAssignor(Claim)
    dealt = only.assign(_Cluster(a=2), {"only": _told(only, "a", "unknown")})
    assert [(topic, list(numbers)) for topic, numbers in dealt["only"].assignment] == [("a", [0, 1]), ("unknown", [])]


def test_what_was_to_be_followed_is_forgotten_when_the_group_is_joined_again() -> None:
    only = StickyAssignor(Claim)
    only.standbys = frozenset({1})
    only.metadata(["a"])
    assert only.standbys == frozenset()
