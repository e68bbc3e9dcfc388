"""Pure core: which partition a key belongs to, for records whose own key is longer than the profile's."""

from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def partition_of(key: bytes, partitions: int) -> int:
    """As the JVM clients, aiokafka and our producers choose it: murmur2, made positive."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """32 bits, unsigned, with Kafka's seed. Source: `org.apache.kafka.common.utils.Utils.murmur2`."""
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
