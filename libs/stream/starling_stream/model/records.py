"""Pure core: the shape of a record as a Kafka client returns it."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias

from starling_stream.model.processor import S, Service


class ClientRecord(Protocol):
    """A record as aiokafka's parser returns it. `timestamp` in milliseconds."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class ReadRecord(NamedTuple):
    """A record and its origin, for Kafka clients whose records have another shape."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


RawRecord: TypeAlias = ClientRecord | ReadRecord


def all_topics(service: Service[S]) -> tuple[str, ...]:
    """Return every topic of the service once, in the order that breaks ties of the merge: the time topic comes last."""
    inputs = [topic for topic in service.inputs if topic != service.time_topic]
    return tuple(dict.fromkeys((*inputs, *service.clock_topics)))
