"""Core: the membership feed as pages: from a cursor to changes, exactly once and each user's in sequence."""

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from starling_api.http.errors import BadRequest, CursorExpired
from starling_common.kafka import BrokerUnavailable
from starling_common.membership_json import membership_json

LATEST: Final = "latest"
"""In place of a cursor: from now on."""

MAX_SCANNED: Final = 5_000
"""Records of the topic that one page scans, those of other workspaces and segments included. It bounds the time of a page."""

_MAX_OFFSET: Final = 2**63
_SILENT_TURNS: Final = 40
_TURN_SECONDS: Final = 0.25

Position = tuple[int, ...]
"""The next offset to read of each partition of the feed, by its number."""


class Span(NamedTuple):
    """What a partition holds of committed records: the first offset that is kept, and the one after the last."""

    first: int
    end: int


class Seen(NamedTuple):
    """A step in one partition: where to go on, and the record, unless it is another workspace's or none at all."""

    partition: int
    next_offset: int
    record: Mapping[str, Any] | None


class Follower(Protocol):
    """Reads on from where it was opened."""

    def take(self, most: int, wait_seconds: float) -> Sequence[Seen]:
        """What has come, a partition's in order; empty when nothing came. Raises: CursorExpired, RegistryUnavailable."""


class Feed(Protocol):
    """The feed's topic. Every method may raise BrokerUnavailable, RegistryUnavailable or SchemaMissing."""

    def spans(self) -> Sequence[Span]:
        """By number of partition."""

    def reading(self, workspace: str, start: Mapping[int, int]) -> AbstractContextManager[Follower]:
        """Committed records of those partitions, from those offsets on."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a reader wants. `segments` empty: all of them. `after`: a cursor, `latest`, or None for all that is kept."""

    workspace: str
    segments: frozenset[str]
    after: str | None
    limit: int

    def wants(self, record: Mapping[str, Any] | None) -> bool:
        """Whether a record is part of the answer."""
        return record is not None and (not self.segments or record["segment_key"] in self.segments)


class Page(NamedTuple):
    """Changes, where to go on, and whether there was more to read."""

    changes: list[dict[str, Any]]
    position: Position
    is_last: bool


def read_page(feed: Feed, asked: Asked) -> Page:
    """The next changes; the page ends at its limit, at the end of the feed, or after `MAX_SCANNED` records.

    Raises: BadRequest, CursorExpired, BrokerUnavailable.
    """
    spans = feed.spans()
    position = list(starting(asked.after, spans))
    unread = {number: offset for number, offset in enumerate(position) if offset < spans[number].end}
    changes: list[dict[str, Any]] = []
    if not unread:
        return Page(changes, tuple(position), is_last=True)
    with feed.reading(asked.workspace, unread) as follower:
        _fill(changes, position, asked, (follower, spans))
    return Page(changes, tuple(position), is_last=_is_reached(position, spans))


def _fill(changes: list[dict[str, Any]], position: list[int], asked: Asked, source: tuple[Follower, Sequence[Span]]) -> None:
    follower, spans = source
    scanned = silent = 0
    while not _is_reached(position, spans) and len(changes) < asked.limit and scanned < MAX_SCANNED:
        found = follower.take(min(asked.limit, MAX_SCANNED - scanned), _TURN_SECONDS)
        silent = 0 if found else silent + 1
        if silent == _SILENT_TURNS:
            raise BrokerUnavailable("the broker did not hand out the feed's records in time")
        scanned += len(found)
        for seen in found:
            if len(changes) == asked.limit:
                return
            position[seen.partition] = seen.next_offset
            if asked.wants(seen.record):
                changes.append(membership_json(seen.record or {}))


def follow(feed: Feed, asked: Asked, position: Position) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """Changes as they come, each with the cursor after it; an empty list now and then while nothing comes. Never ends by itself.

    Raises: CursorExpired, BrokerUnavailable, RegistryUnavailable, SchemaMissing.
    """
    at = list(position)
    with feed.reading(asked.workspace, dict(enumerate(at))) as follower:
        while True:
            changes = []
            for seen in follower.take(asked.limit, _TURN_SECONDS):
                at[seen.partition] = seen.next_offset
                if asked.wants(seen.record):
                    changes.append((cursor_of(tuple(at)), membership_json(seen.record or {})))
            yield changes


def starting(after: str | None, spans: Sequence[Span]) -> Position:
    """Where to begin. Raises: BadRequest (`bad_cursor`), CursorExpired."""
    if after is None:
        return tuple(span.first for span in spans)
    if after == LATEST:
        return tuple(span.end for span in spans)
    found = _position_in(after)
    if len(found) > len(spans):
        raise _bad_cursor()
    # Partitions that were added later are read from their first record on.
    position = found + tuple(span.first for span in spans[len(found) :])
    if any(not span.first <= offset <= span.end for offset, span in zip(position, spans, strict=True)):
        raise CursorExpired("the records after this cursor have been deleted: read the members, then the feed without a cursor")
    return position


def cursor_of(position: Position) -> str:
    """A position as clients see it."""
    return base64.urlsafe_b64encode(msgspec.json.encode(["feed", *position])).decode().rstrip("=")


def _position_in(cursor: str) -> Position:
    try:
        name, *offsets = msgspec.json.decode(base64.urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4)))
    except (ValueError, TypeError, binascii.Error, msgspec.DecodeError, RecursionError):
        raise _bad_cursor() from None
    if name != "feed" or not all(type(offset) is int and 0 <= offset < _MAX_OFFSET for offset in offsets):
        raise _bad_cursor()
    return tuple(offsets)


def _bad_cursor() -> BadRequest:
    return BadRequest("bad_cursor", f"after must be a cursor of an earlier answer, unchanged, or {LATEST!r}")


def _is_reached(position: Sequence[int], spans: Sequence[Span]) -> bool:
    return all(offset >= span.end for offset, span in zip(position, spans, strict=True))
