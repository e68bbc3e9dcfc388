"""Edge: the membership feed for those without Kafka: as pages, and live."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import JSONResponse

from starling_api.definitions.routes import COMMON
from starling_api.feed.changes import LATEST, Asked, cursor_of, follow, read_page, starting
from starling_api.feed.streams import EVENT_STREAM
from starling_api.http.dependencies import Services, UsedServices, Viewer
from starling_api.http.models import FeedPageView
from starling_api.http.pagination import DEFAULT_LIMIT, MAX_LIMIT
from starling_api.http.problems import problems
from starling_common.cassandra import DatabaseUnavailable
from starling_common.logs import log

feed_router = APIRouter(prefix="/v1", tags=["feed"])

_MAX_SEGMENTS: Final = 100
_MAX_CURSOR: Final = 40_000


def _asked(
    caller: Viewer,
    after: Annotated[
        str | None,
        Query(max_length=_MAX_CURSOR, description=f"`cursor` of an earlier answer, or `{LATEST}` for the end of the feed"),
    ] = None,
    cursor: Annotated[str | None, Query(max_length=_MAX_CURSOR, description="The same as `after`")] = None,
    segment: Annotated[list[str] | None, Query(max_length=_MAX_SEGMENTS, description="Only changes of these segments")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Most items of the page")] = DEFAULT_LIMIT,
    last_event_id: Annotated[
        str | None,
        Header(alias="Last-Event-ID", max_length=_MAX_CURSOR, description="Of a live feed: id of the last event received"),
    ] = None,
) -> Asked:
    return Asked(caller.workspace, frozenset(segment or ()), last_event_id or after or cursor, limit)


_LIVE: Final = {
    "type": "string",
    "description": "Server-sent events: `id` is the cursor after the change, `data` a MembershipChange",
}
_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    200: {"model": FeedPageView, "content": {EVENT_STREAM: {"schema": _LIVE}}},
    **problems(*COMMON, 410),
}


@feed_router.get("/feed", operation_id="read_feed", summary="Read the membership feed, as pages or live", responses=_ANSWERS)
def feed(request: Request, services: UsedServices, asked: Annotated[Asked, Depends(_asked)]) -> Response:
    """Every change exactly once, those of one user in sequence. Without `after` it starts with the oldest record.

    A page can have few items, or none, and still have a `next_cursor`: one page scans a bounded number of records. With
    `Accept: text/event-stream` the answer does not end: each change is an event, and its `id` is the cursor after it.
    """
    if EVENT_STREAM in request.headers.get("accept", ""):
        position = starting(asked.after, services.feed.spans())
        return services.streams.open(follow(services.feed, asked, position))
    as_of = _as_of(services)
    page = read_page(services.feed, asked)
    cursor = cursor_of(page.position)
    return JSONResponse({"items": page.changes, "next_cursor": None if page.is_last else cursor, "cursor": cursor, "as_of": as_of})


def _as_of(services: Services) -> str | None:
    # The feed is read from the broker alone, and goes on without the database, which is needed for this only.
    try:
        return services.queries.as_of()
    except DatabaseUnavailable as error:
        log(__name__).warning("as_of_unknown", error=str(error))
        return None
