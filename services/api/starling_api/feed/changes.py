"""Core: pages of the membership feed. Each change appears exactly once, the changes of one user in sequence."""

import base64
import binascii
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from starling_api.http.errors import BadRequest, CursorExpired
from starling_common.kafka.clients import BrokerUnavailable
from starling_common.records.membership_json import membership_json
from starling_common.telemetry.logs import log
from starling_common.time.instants import format_instant

LATEST: Final = "latest"
"""The cursor of the end of the feed."""

MAX_SCANNED: Final = 5_000
"""Maximum records that one page scans, including those of other workspaces and segments. It bounds the latency of a page."""

_MAX_OFFSET: Final = 2**63
_MAX_IDLE_POLLS: Final = 40
_POLL_SECONDS: Final = 0.25

Wanted = Callable[[bytes, bytes], bool]
"""Decides by its key and value, before it is decoded, whether a record can be part of the response."""

Position = tuple[int, ...]
"""The next offset to read, indexed by partition number."""


class Span(NamedTuple):
    """The offsets of a partition: the first available one, and the one after the last committed record."""

    first: int
    end: int


class FeedStep(NamedTuple):
    """One scanned record of a partition. `record` is None for a record that is not wanted, or cannot be decoded."""

    partition: int
    next_offset: int
    record: Mapping[str, Any] | None


class Follower(Protocol):
    """Reads records from the offsets with which it was opened."""

    def take(self, most: int, wait_seconds: float) -> Sequence[FeedStep]:
        """Return the next records, in order within a partition; empty after `wait_seconds` without a record.

        Raises: CursorExpired, RegistryUnavailable.
        """


class Feed(Protocol):
    """The topic of the feed. Every method may raise BrokerUnavailable, RegistryUnavailable or SchemaMissing."""

    def spans(self) -> Sequence[Span]:
        """Return the offsets of every partition, indexed by its number."""

    def reading(self, wanted: Wanted, start: Mapping[int, int]) -> AbstractContextManager[Follower]:
        """Return a follower of the committed records from `start` (partition -> offset)."""


class DatedFeed(Feed, Protocol):
    """A topic that can be read from an instant on."""

    def offsets_at(self, instant_ms: int) -> Sequence[int | None]:
        """Return for every partition the first offset at that instant or later, or None. Raises: BrokerUnavailable."""


class Scan(Protocol):
    """A request that reads a topic."""

    @property
    def limit(self) -> int:
        """Return the most items of a page."""

    def is_wanted(self, key: bytes, value: bytes) -> bool:
        """Return whether the record must be decoded."""

    def item_of(self, seen: FeedStep) -> dict[str, Any] | None:
        """Return the record as the response contains it; None if it does not."""


@dataclass(frozen=True, slots=True)
class FeedRequest:
    """A request for changes. `segments` empty: all segments. `after`: a cursor, `latest`, or None for the oldest record."""

    workspace: str
    segments: frozenset[str]
    after: str | None
    limit: int

    def is_wanted(self, key: bytes, _value: bytes) -> bool:
        """Return whether the record is of the workspace."""
        return key.startswith(f"{self.workspace}/".encode())

    def item_of(self, seen: FeedStep) -> dict[str, Any] | None:
        """Return the record as the response contains it; None if it is of another segment, or cannot be written as JSON."""
        record = seen.record
        if record is None or (self.segments and record["segment_key"] not in self.segments):
            return None
        try:
            change = membership_json(record)
            # As the response will be: traits without JSON, or an instant without a date, must not fail the whole page.
            json.dumps(change, ensure_ascii=False, allow_nan=False).encode()
        except (ValueError, OverflowError, RecursionError) as error:
            place = (seen.partition, seen.next_offset - 1)
            log(__name__).warning("membership_change_unreadable", origin=place, code="no_json", reason=str(error))
            return None
        return change


class Page(NamedTuple):
    """One page. `position`: offsets of the next page; `is_last`: the end of the topic is reached."""

    items: list[dict[str, Any]]
    position: Position
    is_last: bool


def read_page(feed: Feed, query: FeedRequest) -> Page:
    """Return the next page. It ends at its limit, at the end of the feed, or after `MAX_SCANNED` records.

    Raises: BadRequest, CursorExpired, BrokerUnavailable.
    """
    spans = feed.spans()
    return scan(feed, query, starting(query.after, spans), spans, MAX_SCANNED)


def scan(log: Feed, query: Scan, start: Position, spans: Sequence[Span], most_scanned: int) -> Page:
    """Return the items from a position. The page ends at its limit, at the ends in `spans`, or after `most_scanned` records.

    Raises: CursorExpired, BrokerUnavailable.
    """
    position = list(start)
    unread = {number: offset for number, offset in enumerate(position) if offset < spans[number].end}
    items: list[dict[str, Any]] = []
    if not unread:
        return Page(items, start, is_last=True)
    with log.reading(query.is_wanted, unread) as follower:
        _fill(items, position, query, (follower, spans, most_scanned))
    return Page(items, tuple(position), is_last=_is_reached(position, spans))


def _fill(items: list[dict[str, Any]], position: list[int], query: Scan, source: tuple[Follower, Sequence[Span], int]) -> None:
    follower, spans, most_scanned = source
    scanned = idle = 0
    while not _is_reached(position, spans) and len(items) < query.limit and scanned < most_scanned:
        found = follower.take(min(query.limit, most_scanned - scanned), _POLL_SECONDS)
        idle = 0 if found else idle + 1
        if idle == _MAX_IDLE_POLLS:
            raise BrokerUnavailable("the broker did not return the records in time")
        scanned += len(found)
        for seen in found:
            if len(items) == query.limit:
                return
            position[seen.partition] = seen.next_offset
            item = query.item_of(seen)
            if item is not None:
                items.append(item)


def follow(feed: Feed, query: FeedRequest, position: Position) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """Yield lists of (cursor, change) without end. The cursor is the position after the change. A list is empty if no record came.

    Raises: CursorExpired, BrokerUnavailable, RegistryUnavailable, SchemaMissing.
    """
    at = list(position)
    with feed.reading(query.is_wanted, dict(enumerate(at))) as follower:
        while True:
            changes = []
            for seen in follower.take(query.limit, _POLL_SECONDS):
                at[seen.partition] = seen.next_offset
                change = query.item_of(seen)
                if change is not None:
                    changes.append((cursor_of(tuple(at)), change))
            yield changes


def position_at(log: DatedFeed, instant_ms: int, spans: Sequence[Span]) -> Position:
    """Return the position of the first records at that instant or later. Raises: BrokerUnavailable."""
    found = log.offsets_at(max(0, instant_ms))
    # A partition that was added meanwhile is read from its first record.
    found = [*found, *[span.first for span in spans[len(found) :]]]
    return tuple(span.end if at is None else min(max(at, span.first), span.end) for at, span in zip(found, spans, strict=False))


def page_answer(page: Page, name: str, now_ms: int) -> dict[str, Any]:
    """Return the response with a page of the list `name`. `as_of` is the wall clock of the request."""
    following = None if page.is_last else cursor_of(page.position, name)
    return {"items": page.items, "next_cursor": following, "as_of": format_instant(now_ms)}


def starting(after: str | None, spans: Sequence[Span], name: str = "feed") -> Position:
    """Return the first position to read. Raises: BadRequest (`bad_cursor`), CursorExpired."""
    if after is None:
        return tuple(span.first for span in spans)
    if after == LATEST:
        return tuple(span.end for span in spans)
    found = _position_in(after, name)
    if len(found) > len(spans):
        raise _bad_cursor()
    # Partitions that were added after the cursor start at their first record.
    position = found + tuple(span.first for span in spans[len(found) :])
    if any(not span.first <= offset <= span.end for offset, span in zip(position, spans, strict=True)):
        raise CursorExpired("the records after this cursor have been deleted: start again without a cursor")
    return position


def cursor_of(position: Position, name: str = "feed") -> str:
    """Return the cursor of a position in the list `name`."""
    return base64.urlsafe_b64encode(msgspec.json.encode([name, *position])).decode().rstrip("=")


def _position_in(cursor: str, name: str) -> Position:
    try:
        found_name, *offsets = msgspec.json.decode(base64.urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4)))
    except (ValueError, TypeError, binascii.Error, msgspec.DecodeError, RecursionError):
        raise _bad_cursor() from None
    if found_name != name or not all(type(offset) is int and 0 <= offset < _MAX_OFFSET for offset in offsets):
        raise _bad_cursor()
    return tuple(offsets)


def _bad_cursor() -> BadRequest:
    return BadRequest("bad_cursor", f"the cursor must be that of an earlier response, unchanged; for the feed also {LATEST!r}")


def _is_reached(position: Sequence[int], spans: Sequence[Span]) -> bool:
    return all(offset >= span.end for offset, span in zip(position, spans, strict=True))
