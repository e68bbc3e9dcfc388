"""Pure core: the Kafka position of a table, and the records of a batch that the table lacks.

Every commit to a table writes its rows and the offsets after them to the same snapshot. A killed process therefore never leaves
one without the other.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

TopicPartition = tuple[str, int]
"""(topic, partition)."""

Position = Mapping[TopicPartition, int]
"""The first offset of each partition that the table lacks."""


@dataclass(frozen=True, slots=True)
class Tip:
    """The position of a table, and the id of the snapshot that has it; None before the first append."""

    position: Position
    snapshot: int | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """The records of one partition in a batch: their number, and the offsets from `first` to before `end`."""

    first: int
    end: int
    records: int


def to_text(position: Position) -> str:
    """Return a position as JSON text, which the summary of a snapshot contains."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(position.items()):
        topics.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(topics, separators=(",", ":"))


def from_text(text: str) -> Position:
    """Return the position that a JSON text of `to_text` contains: partition -> next offset. Raises: ValueError."""
    return {(topic, int(number)): int(offset) for topic, parts in json.loads(text).items() for number, offset in parts.items()}


def of_topics(spans: Mapping[TopicPartition, Span], topics: Iterable[str]) -> dict[TopicPartition, Span]:
    """Return the spans of these topics."""
    wanted = set(topics)
    return {place: span for place, span in spans.items() if place[0] in wanted}


def is_in(position: Position, spans: Mapping[TopicPartition, Span]) -> bool:
    """Return whether the table contains all of these records."""
    return all(position.get(place, 0) >= span.end for place, span in spans.items())


def partly_in(position: Position, spans: Mapping[TopicPartition, Span]) -> dict[TopicPartition, int]:
    """Return the partitions whose records the table contains in part, with the first offset that it lacks."""
    return {place: position[place] for place, span in spans.items() if position.get(place, 0) > span.first}


def after(position: Position, spans: Mapping[TopicPartition, Span]) -> Position:
    """Return the offset after these records, by partition."""
    ends = {place: span.end for place, span in spans.items()}
    return {**position, **{place: max(end, position.get(place, 0)) for place, end in ends.items()}}
