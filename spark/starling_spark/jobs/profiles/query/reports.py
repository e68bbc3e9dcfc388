"""Adapter: what the workers report to the driver: the stream times of the partitions, and the numbers of users of the buckets."""

from pyspark.accumulators import Accumulator, AccumulatorParam

StreamTimes = dict[int, int]
"""Partition -> stream time, in ms."""
UserCounts = dict[int, tuple[int, int]]
"""Grouping key of a bucket -> how many users have a state, and how many wait for the end of the step."""


class LatestTimes(AccumulatorParam[StreamTimes]):
    """The latest time of each partition. A task that is repeated changes nothing."""

    def zero(self, value: StreamTimes) -> StreamTimes:  # noqa: ARG002 - PySpark's signature
        """Return no times."""
        return {}

    def addInPlace(self, value1: StreamTimes, value2: StreamTimes) -> StreamTimes:  # noqa: N802 - PySpark's name
        """Return the later time of each partition."""
        for partition, time_ms in value2.items():
            value1[partition] = max(time_ms, value1.get(partition, 0))
        return value1


class LastCounts(AccumulatorParam[UserCounts]):
    """The last counts of each bucket. A task that is repeated changes nothing."""

    def zero(self, value: UserCounts) -> UserCounts:  # noqa: ARG002 - PySpark's signature
        """Return no counts."""
        return {}

    def addInPlace(self, value1: UserCounts, value2: UserCounts) -> UserCounts:  # noqa: N802 - PySpark's name
        """Return the later counts of each bucket."""
        value1.update(value2)
        return value1


Times = Accumulator[StreamTimes]
Counts = Accumulator[UserCounts]
