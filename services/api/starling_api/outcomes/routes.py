"""Edge: the outcomes of items over HTTP."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse

from starling_api.definitions.routes import COMMON
from starling_api.feed.routes import MAX_CURSOR
from starling_api.http.dependencies import UsedServices, Viewer
from starling_api.http.pagination import DEFAULT_LIMIT, MAX_LIMIT
from starling_api.http.problems import problems
from starling_api.outcomes.models import OutcomePageModel
from starling_api.outcomes.outcomes import OutcomeFilter

outcome_router = APIRouter(prefix="/v1/outcomes", tags=["outcomes"])


@outcome_router.get(
    "",
    operation_id="list_outcomes",
    summary="Find out what became of items",
    responses={200: {"model": OutcomePageModel}, **problems(*COMMON, 410)},
)
def outcomes(  # noqa: PLR0913, PLR0917 - the query's parameters
    services: UsedServices,
    caller: Viewer,
    message_id: Annotated[str | None, Query(max_length=100, description="Only the item with this `messageId`")] = None,
    user_id: Annotated[
        str | None,
        Query(max_length=512, description="Only items with this `userId`, or with this `anonymousId` and without a `userId`"),
    ] = None,
    outcome: Annotated[
        Literal["ACCEPTED", "DUPLICATE", "REFUSED"] | None, Query(description="Only items with this outcome")
    ] = None,
    since: Annotated[
        str | None,
        Query(max_length=40, description="Only items received at this instant or later; default: an hour ago"),
    ] = None,
    cursor: Annotated[
        str | None, Query(max_length=MAX_CURSOR, description="`next_cursor` of the previous page, with the same other parameters")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Maximum number of items")] = DEFAULT_LIMIT,
) -> Response:
    """Each accepted item has an outcome: accepted, with the id of its event; duplicate; or refused, with the reason.

    Outcomes are kept for seven days. Those of one user are in order of arrival. One page scans a bounded number of records, so it
    can be short or empty and still have a `next_cursor`; a search with `user_id` is the fastest. `as_of` is the time of the
    request.
    """
    return JSONResponse(services.outcomes.page(caller.workspace, OutcomeFilter(message_id, user_id, outcome, since), cursor, limit))
