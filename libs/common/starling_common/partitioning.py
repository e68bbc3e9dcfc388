"""Pure core: Kafka's default partitioner, for records that follow a profile's partition but have a longer key."""

from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a key, as the JVM clients, aiokafka and our producers compute it: murmur2 without its sign bit."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """Return the unsigned 32-bit hash with Kafka's seed. Source: `org.apache.kafka.common.utils.Utils.murmur2`."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for place in range(0, whole, 4):
        k = int.from_bytes(data[place : place + 4], "little") * _M & _MASK
        k ^= k >> 24
        h = h * _M & _MASK ^ (k * _M & _MASK)
    if length > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h ^= h >> 13
    h = h * _M & _MASK
    return h ^ h >> 15
