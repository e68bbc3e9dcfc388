"""Edge: materialised views."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse

from starling_api.materialised import Asked
from starling_api.requests import Page, UsedServices, Viewer
from starling_api.views import MaterialisedView, ProblemView

materialised_router = APIRouter(prefix="/v1/views", tags=["views"])

_OWN: Final = {"from", "to", "limit", "cursor"}
_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {200: {"model": MaterialisedView}, 404: {"model": ProblemView}}


@materialised_router.get("/{name}", summary="Rows of a materialised view", responses=_ANSWERS)
def rows(  # noqa: PLR0913, PLR0917 - the query's parameters
    name: str,
    request: Request,
    services: UsedServices,
    caller: Viewer,
    page: Page,
    since: Annotated[str | None, Query(alias="from", description="windows that begin at this instant or later")] = None,
    until: Annotated[str | None, Query(alias="to", description="windows that begin before this instant")] = None,
) -> Response:
    """By window, the oldest first. Any dimension of the view may be a parameter too: `?region=Berlin`.

    `as_of`: every event up to that stream time is in; a later one of an earlier time still corrects the rows.
    """
    filters = {key: value for key, value in request.query_params.items() if key not in _OWN}
    return JSONResponse(services.materialised.page(caller.workspace, name, Asked(since, until, filters), page))
