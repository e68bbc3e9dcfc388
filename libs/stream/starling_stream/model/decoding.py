"""Pure core: a record as it was read -> what the fold takes, or a refusal that travels in its place."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias

from starling_common.outcome import Refused
from starling_common.wire import DecodeError
from starling_stream.model.processor import Inbound, S, Service


class ClientRecord(Protocol):
    """A record as aiokafka's parser gives it. `timestamp` in milliseconds."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class ReadRecord(NamedTuple):
    """The same and its place, of our own making, for clients whose records are of another shape."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


RawRecord: TypeAlias = ClientRecord | ReadRecord


def all_topics(service: Service[S]) -> tuple[str, ...]:
    """Every topic the service reads, each once, in the order that breaks ties of the merge."""
    return tuple(dict.fromkeys((*service.inputs, *service.clock_topics)))


def decode_record(service: Service[S], topic: str, partition: int, record: RawRecord) -> Inbound:
    """Never raises on data: what cannot be decoded, or has no key, carries a `Refused` as its value.

    Such a record takes its place in the order of arrival by the broker's timestamp.
    """
    key, raw = record.key or b"", record.value or b""
    if not key and topic not in service.clock_topics:
        return _refused(
            topic, partition, record, Refused("missing_key", "the record has no key: write it with workspace/id as its key")
        )
    try:
        value, received_at, event_time_ms, own_key = service.processor.decode(topic, raw)
    except DecodeError as error:
        return _refused(topic, partition, record, Refused(error.code, str(error)))
    # Hot: once for each record; a named tuple's own constructor takes twice as long.
    inbound = (topic, partition, record.offset, own_key or key, value, received_at, event_time_ms, record.headers, raw)
    return _new(Inbound, inbound)


_new = tuple.__new__


def _refused(topic: str, partition: int, record: RawRecord, why: Refused) -> Inbound:
    key, raw = record.key or b"", record.value or b""
    arrived = record.timestamp * 1000
    return Inbound(topic, partition, record.offset, key, why, arrived, None, record.headers, raw)
