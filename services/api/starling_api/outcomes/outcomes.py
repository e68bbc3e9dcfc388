"""Core: pages of the outcomes of items, from the records of `ingest.outcomes`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from starling_api.feed.changes import DatedFeed, FeedStep, Position, Span, page_answer, position_at, scan, starting
from starling_api.http.pagination import instant_parameter
from starling_common.partitioning import partition_of
from starling_common.telemetry.logs import log
from starling_common.time.instants import format_instant

DEFAULT_SECONDS: Final = 3600
"""How far back outcomes are looked for without `since`."""

MAX_SCANNED: Final = 50_000
"""Maximum records that one page scans. Most of them are not decoded, because their bytes show that they are not wanted."""

_LIST: Final = "outcomes"


class OutcomeFilter(NamedTuple):
    """The wanted outcomes. None: any. `user_id`: the `userId` as sent, or the `anonymousId` of an item without one."""

    message_id: str | None
    user_id: str | None
    outcome: str | None
    since: str | None


@dataclass(frozen=True, slots=True)
class OutcomeScan:
    """A request for outcomes, as `feed.changes.scan` takes it."""

    workspace: str
    wanted: OutcomeFilter
    since_ms: int | None
    limit: int

    def is_wanted(self, key: bytes, value: bytes) -> bool:
        """Return whether the record's bytes allow it to be wanted."""
        message_id, user_id = self.wanted.message_id, self.wanted.user_id
        if message_id is not None and message_id.encode() not in value:
            return False
        prefix = f"{self.workspace}/"
        return key.startswith(prefix.encode()) if user_id is None else key == f"{prefix}{user_id}".encode()

    def item_of(self, seen: FeedStep) -> dict[str, Any] | None:
        """Return the outcome as the response contains it; None if it is not wanted, or has no readable instant."""
        record = seen.record
        if record is None or not self._matches(record):
            return None
        try:
            return _item(record)
        except (ValueError, OverflowError, OSError) as error:
            log(__name__).warning("outcome_unreadable", origin=(seen.partition, seen.next_offset - 1), reason=str(error))
            return None

    def _matches(self, record: Mapping[str, Any]) -> bool:
        wanted = self.wanted
        return (
            wanted.message_id in {None, record["message_id"]}
            and wanted.outcome in {None, record["outcome"]}
            and (self.since_ms is None or record["received_at"] >= self.since_ms * 1000)
        )


class Outcomes:
    """Pages of outcomes."""

    def __init__(self, log: DatedFeed, now_ms: Callable[[], int]) -> None:
        """`now_ms`: the wall clock."""
        self._log = log
        self._now_ms = now_ms

    def page(self, workspace: str, wanted: OutcomeFilter, cursor: str | None, limit: int) -> dict[str, Any]:
        """Return a page. `next_cursor` is None at the end of the topic. `as_of` is the wall clock of the request.

        Raises: BadRequest (`bad_cursor`, `bad_instant`), CursorExpired, BrokerUnavailable, RegistryUnavailable, SchemaMissing.
        """
        now_ms = self._now_ms()
        since_ms = None if wanted.since is None else instant_parameter("since", wanted.since)
        spans = self._log.spans()
        if cursor is None:
            start = position_at(self._log, now_ms - 1000 * DEFAULT_SECONDS if since_ms is None else since_ms, spans)
        else:
            start = starting(cursor, spans, _LIST)
        page = scan(
            self._log,
            OutcomeScan(workspace, wanted, since_ms, limit),
            _of_user(start, spans, workspace, wanted.user_id),
            spans,
            MAX_SCANNED,
        )
        return page_answer(page, _LIST, now_ms)


def _of_user(start: Position, spans: Sequence[Span], workspace: str, user_id: str | None) -> Position:
    """Return the position with only the user's partition left to read."""
    if user_id is None:
        return start
    own = partition_of(f"{workspace}/{user_id}".encode(), len(spans))
    return tuple(at if number == own else spans[number].end for number, at in enumerate(start))


def _item(record: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "message_id": record["message_id"],
        "user_id": record["user_id"],
        "outcome": record["outcome"],
        "event_id": record["event_id"],
        "event_topic": record["event_topic"],
        "code": record["code"],
        "message": record["message"],
        "received_at": format_instant(record["received_at"] // 1000),
        "decided_at": format_instant(record["decided_at"]),
        "correlation_id": record["correlation_id"],
        "origin": {
            "topic": record["origin_topic"],
            "partition": record["origin_partition"],
            "offset": record["origin_offset"],
        },
    }
