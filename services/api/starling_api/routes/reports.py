"""Edge: reports."""

from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse

from starling_api.reports import AskedReport
from starling_api.requests import Page, UsedServices, Viewer
from starling_api.views import AudienceReportView, ProblemView

report_router = APIRouter(prefix="/v1/reports", tags=["reports"])

_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {200: {"model": AudienceReportView}, 404: {"model": ProblemView}}


@report_router.get("/audience", summary="The audience report", responses=_ANSWERS)
def audience(  # noqa: PLR0913, PLR0917 - the query's parameters
    services: UsedServices,
    caller: Viewer,
    page: Page,
    show: Annotated[Literal["days", "retention", "overlap"], Query()] = "days",
    segment: Annotated[str | None, Query(description="only this one")] = None,
    since: Annotated[str | None, Query(alias="from", description="this day or later")] = None,
    until: Annotated[str | None, Query(alias="to", description="before this day")] = None,
) -> Response:
    """Of the newest report: each segment's size, entries and exits by day; who stayed; who is in two segments at once.

    By segment, then by day (or by the other segment). 404 before the first report was made.
    """
    return JSONResponse(services.reports.page(caller.workspace, AskedReport(show, segment, since, until), page))
