"""Edge: the route that reads a view: in SQL, its definition and its run; a materialised one, its rows."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse

from starling_api.definitions.kinds.kinds import VIEWS
from starling_api.definitions.routes import COMMON, etag
from starling_api.http.dependencies import Page, UsedServices, Viewer
from starling_api.http.problems import problems
from starling_api.reports.models import MaterialisedPageModel
from starling_api.reports.views import ViewRequest
from starling_api.sql.models import ViewModel

view_router = APIRouter(prefix="/v1/views", tags=["views"])

_OWN: Final = {"from", "to", "limit", "cursor"}
_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {200: {"model": ViewModel | MaterialisedPageModel}, **problems(*COMMON, 404)}
_DIMENSIONS: Final[dict[str, Any]] = {
    "name": "dimensions",
    "in": "query",
    "description": "A value for any dimension of the view, such as `region=Berlin`",
    "style": "form",
    "explode": True,
    "schema": {"type": "object", "additionalProperties": {"type": "string"}},
}


@view_router.get(
    "/{key}",
    operation_id="get_view",
    summary="Read a view in SQL, or the rows of a materialised view",
    responses=_ANSWERS,
    openapi_extra={"parameters": [_DIMENSIONS]},
)
def rows(  # noqa: PLR0913, PLR0917 - the query's parameters
    key: str,
    request: Request,
    services: UsedServices,
    caller: Viewer,
    page: Page,
    since: Annotated[str | None, Query(alias="from", description="Only windows that start at this instant or later")] = None,
    until: Annotated[str | None, Query(alias="to", description="Only windows that start before this instant")] = None,
) -> Response:
    """A view in SQL is shown with its last run; its rows are a table of the lake. The parameters have no effect on it.

    The rows of a materialised view are sorted by window, the oldest first. Every dimension of the view is a parameter too:
    `?region=Berlin`. The rows contain every event up to the stream time `as_of`. Late events update them.
    """
    if services.commands.reader.definition(caller.workspace, VIEWS.name, key) is not None:
        definition, shown = services.queries.definition(VIEWS, caller.workspace, key)
        return JSONResponse(shown, headers={"ETag": etag(definition)})
    filters = {key: value for key, value in request.query_params.items() if key not in _OWN}
    return JSONResponse(services.materialised_views.page(caller.workspace, key, ViewRequest(since, until, filters), page))
