"""Pure core: how far a table goes in Kafka, and which records of a batch are new to it.

A table says itself how far it goes: every commit carries the offsets up to which its rows are in, in the very snapshot
that brings them. So there is no moment in which the one is there without the other, whatever is killed.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Place = tuple[str, int]
"""(topic, partition)."""

Position = Mapping[Place, int]
"""The first offset of each partition that is not in."""


@dataclass(frozen=True, slots=True)
class Span:
    """What a batch holds of one partition: `records` of them, `first` to the one before `end`."""

    first: int
    end: int
    records: int


def to_text(position: Position) -> str:
    """For a snapshot's summary."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(position.items()):
        topics.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(topics, separators=(",", ":"))


def from_text(text: str) -> Position:
    """The inverse. Raises: ValueError."""
    return {(topic, int(number)): int(offset) for topic, parts in json.loads(text).items() for number, offset in parts.items()}


def of_topics(spans: Mapping[Place, Span], topics: Iterable[str]) -> dict[Place, Span]:
    """Only what these topics hold."""
    wanted = set(topics)
    return {place: span for place, span in spans.items() if place[0] in wanted}


def is_in(position: Position, spans: Mapping[Place, Span]) -> bool:
    """Whether all of these records are in already."""
    return all(position.get(place, 0) >= span.end for place, span in spans.items())


def partly_in(position: Position, spans: Mapping[Place, Span]) -> dict[Place, int]:
    """The partitions of which the batch holds records that are in already, with the first offset that is not."""
    return {place: position[place] for place, span in spans.items() if position.get(place, 0) > span.first}


def after(position: Position, spans: Mapping[Place, Span]) -> Position:
    """How far the table goes with these records."""
    ends = {place: span.end for place, span in spans.items()}
    return {**position, **{place: max(end, position.get(place, 0)) for place, end in ends.items()}}
