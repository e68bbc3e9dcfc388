"""Pure core: the values of a capacity plan that were not measured, and why."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from starling_cli.capacity.cpu import changes_of, measured_rps
from starling_cli.capacity.inputs import Inputs, number
from starling_cli.capacity.rates import Rates

DEFAULT_PARTITIONS: Final = 64
PARTITIONS_A_WORKER: Final = 4
"""With four partitions for each worker of the largest stage, an uneven division leaves at most a fifth of a worker idle."""
MIN_REPLICAS: Final = 2
MEMBERSHIP_SHARE: Final = 0.1
"""A user has a row of a membership in this share of the segments."""
COMPACTION_FACTOR: Final = 2.0
"""A compacted topic, a local store and a table of Cassandra take this multiple of their live bytes."""
BROKER_GB: Final = 16.0
NODE_GB: Final = 32.0


@dataclass(frozen=True, slots=True)
class Assumption:
    """What the results do not contain, the value that the plan uses, and why."""

    what: str
    value: str
    why: str


def assumptions(inputs: Inputs, rates: Rates, memberships: float) -> Iterator[Assumption]:
    """Yield what the results do not contain and these inputs need."""
    yield from _about_the_rate(inputs, rates)
    yield from _beyond_the_measurement(inputs, rates)
    yield from _about_inputs_not_given(inputs, memberships)
    yield from _about_the_machines(inputs)


def _about_the_rate(inputs: Inputs, rates: Rates) -> Iterator[Assumption]:
    """Yield what the CPU time of an event depends on."""
    yield Assumption("a core", "as fast as one of the machine of the benchmarks", "other machines were not measured")
    yield Assumption("idle cost of a part", "in proportion to its whole cost", "the result has the sum of all parts only")
    if inputs.rps > measured_rps(rates):
        yield Assumption(
            f"cost of an event above {number(measured_rps(rates))} events/s",
            "as at that rate, idle cost included",
            "one process of each part on two cores was measured; a busy process idles less, so this is an upper bound",
        )
    if inputs.rps < measured_rps(rates):
        yield Assumption(
            "idle cost of further replicas",
            "none",
            "one process of each service was measured; two need at most twice the idle cost",
        )
    yield Assumption("all events", "track calls of known users", "only these were measured")


def _beyond_the_measurement(inputs: Inputs, rates: Rates) -> Iterator[Assumption]:
    """Yield how the cost grows with changes, segments and copies other than the measured ones."""
    measured_segments, measured_changes = rates["platform/options/segments"], rates["platform/changes_an_event"]
    if changes_of(inputs, rates) != measured_changes:
        yield Assumption(
            "cost of a membership change",
            "in proportion to its share of the records or rows of a part",
            "one number of changes was measured",
        )
    if inputs.segments != measured_segments:
        yield Assumption(
            "segments and the other parts",
            "only the segmenter's CPU time and the size of a state grow",
            "the whole platform was measured with one number",
        )
        yield Assumption(
            "state of a user", "grows as the one after ten events a user", "larger with more events in the windows of sequences"
        )
    largest = max(x for x, _ in rates.points("state_bytes"))
    if inputs.segments > largest:
        yield Assumption(f"more than {number(largest)} segments", "the line through the last two points", "not measured")
    if inputs.replication > 1:
        yield Assumption(
            "a further copy in Kafka and Cassandra", "costs as much CPU time as the first", "one broker and one node were measured"
        )


def _about_inputs_not_given(inputs: Inputs, memberships: float) -> Iterator[Assumption]:
    if inputs.average_rps is None:
        yield Assumption("events/s over days", f"the peak, {number(inputs.rps)}", "--average-rps was not given")
    if inputs.memberships is None:
        yield Assumption(
            "memberships a user",
            number(memberships),
            f"{MEMBERSHIP_SHARE:.0%} of the segments, at least 1; --memberships was not given",
        )


def _about_the_machines(inputs: Inputs) -> Iterator[Assumption]:
    """Yield what disks, replicas and memory are computed from."""
    yield Assumption("a row in Cassandra and RocksDB", "the bytes of its record in Kafka", "rows were counted, not weighed")
    yield Assumption(
        "disk for compaction", f"{number(COMPACTION_FACTOR)} * the live bytes", "not measured; half of a disk is the usual advice"
    )
    yield Assumption("headroom", f"{inputs.headroom:.0%}", "for bursts, and for a replica that is away")
    yield Assumption("replicas", f"at least {MIN_REPLICAS}", "one may be away")
    yield Assumption("keys", "even over the partitions", "a partition with a very active user needs more")
    yield Assumption(
        "memory of a broker, of a Cassandra node",
        f"{number(BROKER_GB)} GB, {number(NODE_GB)} GB",
        "not measured under this load",
    )
    yield Assumption("memory of the other services", "as a segmenter", "not measured; the segmenter has the largest caches")
