"""Adapter: the stream times of the partitions, from the workers to the driver."""

from pyspark.accumulators import AccumulatorParam

StreamTimes = dict[int, int]
"""Partition -> stream time, in ms."""


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
