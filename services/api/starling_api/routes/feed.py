"""Edge: the membership feed for those without Kafka: as pages, and live."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import JSONResponse

from starling_api.feed import LATEST, Asked, cursor_of, follow, read_page, starting
from starling_api.pages import DEFAULT_LIMIT, MAX_LIMIT
from starling_api.requests import Services, UsedServices, Viewer
from starling_api.streams import EVENT_STREAM
from starling_api.views import ChangeView, FeedView, ProblemView
from starling_common.cassandra import DatabaseUnavailable
from starling_common.logs import log

feed_router = APIRouter(prefix="/v1", tags=["feed"])

_MAX_SEGMENTS: Final = 100
_MAX_CURSOR: Final = 40_000


def _asked(
    caller: Viewer,
    after: Annotated[
        str | None, Query(max_length=_MAX_CURSOR, description=f"a `cursor` of an earlier answer; `{LATEST}`: from now on")
    ] = None,
    cursor: Annotated[str | None, Query(max_length=_MAX_CURSOR, description="the same as `after`")] = None,
    segment: Annotated[list[str] | None, Query(max_length=_MAX_SEGMENTS, description="only these segments")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT)] = DEFAULT_LIMIT,
    last_event_id: Annotated[str | None, Header(max_length=_MAX_CURSOR, description="of a live feed: where it broke off")] = None,
) -> Asked:
    return Asked(caller.workspace, frozenset(segment or ()), last_event_id or after or cursor, limit)


_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    200: {"model": FeedView, "content": {EVENT_STREAM: {"schema": ChangeView.model_json_schema()}}},
    410: {"model": ProblemView, "description": "what came after the cursor is not kept any more"},
    503: {"model": ProblemView, "description": "the broker is away, or too many are following live"},
}


@feed_router.get("/feed", summary="The membership feed, as pages or live", responses=_ANSWERS)
def feed(request: Request, services: UsedServices, asked: Annotated[Asked, Depends(_asked)]) -> Response:
    """Every change exactly once, each user's in sequence. Without `after`: from the oldest that is kept.

    With `Accept: text/event-stream` the answer never ends: one event a change, its `id` is the cursor after it.
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
