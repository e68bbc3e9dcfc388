"""Where a key goes, as Kafka's own clients choose it."""

import pytest

from starling_common.partitioning import murmur2, partition_of


@pytest.mark.parametrize(
    ("data", "signed"),
    [
        # From Apache Kafka's own UtilsTest.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(data: bytes, signed: int) -> None:
    assert murmur2(data) == signed & 0xFFFFFFFF


def test_partitions_are_those_of_the_positive_hash() -> None:
    assert {partition_of(f"acme/u{n}".encode(), 8) for n in range(100)} == set(range(8))
    assert partition_of(b"21", 8) == (-973932308 & 0x7FFFFFFF) % 8
