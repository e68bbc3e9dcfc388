"""Edge: the membership feed over HTTP, as pages and as server-sent events."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import JSONResponse

from starling_api.definitions.routes import COMMON
from starling_api.feed.changes import LATEST, FeedRequest, cursor_of, follow, read_page, starting
from starling_api.feed.models import FeedPageModel
from starling_api.feed.streams import EVENT_STREAM
from starling_api.http.dependencies import Services, UsedServices, Viewer
from starling_api.http.pagination import DEFAULT_LIMIT, MAX_LIMIT
from starling_api.http.problems import problems
from starling_common.cassandra.sessions import DatabaseUnavailable
from starling_common.telemetry.logs import log

feed_router = APIRouter(prefix="/v1", tags=["feed"])

_MAX_SEGMENTS: Final = 100
MAX_CURSOR: Final = 40_000
"""Maximum length of a cursor, which contains an offset for each partition."""


def _query(
    caller: Viewer,
    after: Annotated[
        str | None,
        Query(max_length=MAX_CURSOR, description=f"`cursor` of an earlier response, or `{LATEST}` for the end of the feed"),
    ] = None,
    cursor: Annotated[str | None, Query(max_length=MAX_CURSOR, description="The same as `after`")] = None,
    segment: Annotated[list[str] | None, Query(max_length=_MAX_SEGMENTS, description="Only changes of these segments")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Maximum number of items")] = DEFAULT_LIMIT,
    last_event_id: Annotated[
        str | None,
        Header(alias="Last-Event-ID", max_length=MAX_CURSOR, description="For a live feed: id of the last received event"),
    ] = None,
) -> FeedRequest:
    return FeedRequest(caller.workspace, frozenset(segment or ()), last_event_id or after or cursor, limit)


_LIVE: Final = {
    "type": "string",
    "description": "Server-sent events: `id` is the cursor after the change, `data` a MembershipChange",
}
_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    200: {"model": FeedPageModel, "content": {EVENT_STREAM: {"schema": _LIVE}}},
    **problems(*COMMON, 410),
}


@feed_router.get("/feed", operation_id="read_feed", summary="Read the membership feed, as pages or live", responses=_ANSWERS)
def feed(request: Request, services: UsedServices, query: Annotated[FeedRequest, Depends(_query)]) -> Response:
    """Each change appears exactly once, the changes of one user in sequence. Without `after` the feed starts at the oldest record.

    One page scans a bounded number of records, so it can be short or empty and still have a `next_cursor`. With
    `Accept: text/event-stream` the response does not end: each change is an event, and its `id` is the cursor after it.
    """
    if EVENT_STREAM in request.headers.get("accept", ""):
        position = starting(query.after, services.feed.spans())
        return services.streams.open(follow(services.feed, query, position), query.workspace)
    as_of = _as_of(services)
    page = read_page(services.feed, query)
    cursor = cursor_of(page.position)
    return JSONResponse({"items": page.items, "next_cursor": None if page.is_last else cursor, "cursor": cursor, "as_of": as_of})


def _as_of(services: Services) -> str | None:
    # Only `as_of` needs the database. The feed itself works without it.
    try:
        return services.queries.as_of()
    except DatabaseUnavailable as error:
        log(__name__).warning("feed_without_as_of", error=str(error))
        return None
