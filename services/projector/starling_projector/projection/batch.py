"""Pure core: converts a batch of records to the rows, changes and progress to write."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from starling_common.kafka.topics import CAMPAIGN_PROGRESS, MEMBERSHIP, PROGRESS
from starling_common.outcome import Done, Refused
from starling_common.records.dead_letters import SourceRecord, arrival
from starling_common.wire import DecodeError, Record
from starling_projector.projection.incarnations import Incarnations, ordinal
from starling_projector.projection.progress import Progress
from starling_projector.projection.rows import Position, Row, Rows, rows_of
from starling_projector.projection.steps import Step, step_of
from starling_projector.projection.tallies import Change


class Inbound(NamedTuple):
    """One undecoded record. `timestamp_ms` is the broker's."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes
    headers: tuple[tuple[str, Any], ...]
    timestamp_ms: int


@dataclass(slots=True)
class Batch:
    """The writes of a batch. `refused`: records for the dead letters, each with its reason."""

    rows: list[Row] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    received: list[int] = field(default_factory=list)
    """For each change, when the edge received the item that caused it, in microseconds."""
    progress: list[Progress] = field(default_factory=list)
    refused: list[tuple[SourceRecord, Refused]] = field(default_factory=list)


Decode = Callable[[str, bytes], Record]
"""Decodes the value of a topic. Raises: DecodeError."""


MakeRows = Callable[[str, Record, Position], Rows]
"""Topic, record and its position -> the rows, as `rows_of`."""


class Topics(NamedTuple):
    """What the broker reports on the topics. `membership_partitions`: the number of partitions of the feed."""

    incarnations: Incarnations
    membership_partitions: int


def read_batch(records: Iterable[Inbound], decode: Decode, topics: Topics, make_rows: MakeRows = rows_of) -> Batch:
    """Return the writes of a batch. A record that cannot be decoded or projected is in `refused`."""
    batch = Batch()
    for inbound in records:
        try:
            record = decode(inbound.topic, inbound.value)
        except DecodeError as error:
            batch.refused.append((source_of(inbound, None), Refused(error.code, str(error))))
            continue
        _take(batch, inbound, record, topics, make_rows)
    return batch


def _take(batch: Batch, inbound: Inbound, record: Record, topics: Topics, make_rows: MakeRows) -> None:
    incarnation = topics.incarnations[inbound.topic]
    if inbound.topic == PROGRESS:
        if not 0 <= record["partition"] < topics.membership_partitions:
            # The broker reports no end of such a partition, and the records after this one would wait for it endlessly.
            why = Refused("unknown_partition", f"{MEMBERSHIP} has no partition {record['partition']}")
            batch.refused.append((source_of(inbound, record), why))
            return
        batch.progress.append(
            Progress(
                record["partition"],
                record["stream_time"],
                record["definitions"],
                record["recorded_at"],
                inbound.offset,
                incarnation,
            )
        )
        return
    outcome = make_rows(inbound.topic, record, Position(inbound.partition, inbound.offset, incarnation))
    match outcome:
        case Done(rows):
            batch.rows.extend(rows)
            if inbound.topic == MEMBERSHIP:
                batch.changes.append(_change(record, inbound, incarnation))
                batch.received.append(record["received_at"])
            elif inbound.topic == CAMPAIGN_PROGRESS:
                _take_step(batch, inbound, record, incarnation)
        case Refused():
            batch.refused.append((source_of(inbound, record), outcome))


def _take_step(batch: Batch, inbound: Inbound, record: Record, incarnation: int) -> None:
    match step_of(record, inbound.partition, ordinal(incarnation, inbound.offset)):
        case Done(step):
            batch.steps.append(step)
        case Refused() as refused:
            batch.refused.append((source_of(inbound, record), refused))


def source_of(inbound: Inbound, record: Record | None) -> SourceRecord:
    """Return the source of a dead letter; `record` is None if the record cannot be decoded."""
    topic, partition, offset, key, value, headers, timestamp_ms = inbound
    return SourceRecord(topic, partition, offset, key, value, headers, arrival(timestamp_ms, record), record)


def _change(record: Record, inbound: Inbound, incarnation: int) -> Change:
    return Change(
        record["workspace"],
        record["segment_key"],
        inbound.partition,
        ordinal(incarnation, inbound.offset),
        record["status"] == "ENTERED",
        record["effective_at"],
    )
