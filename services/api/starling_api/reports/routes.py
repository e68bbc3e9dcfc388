"""Edge: the routes of reports."""

from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse

from starling_api.definitions.routes import COMMON
from starling_api.http.dependencies import Page, UsedServices, Viewer
from starling_api.http.problems import problems
from starling_api.reports.audience_report import ReportRequest
from starling_api.reports.models import AudienceReportPageModel

report_router = APIRouter(prefix="/v1/reports", tags=["reports"])

_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {200: {"model": AudienceReportPageModel}, **problems(*COMMON, 404)}


@report_router.get("/audience", operation_id="get_audience_report", summary="Read the audience report", responses=_ANSWERS)
def audience(  # noqa: PLR0913, PLR0917 - the query's parameters
    services: UsedServices,
    caller: Viewer,
    page: Page,
    show: Annotated[Literal["days", "retention", "overlap"], Query(description="Part of the report")] = "days",
    segment: Annotated[str | None, Query(description="Only this segment")] = None,
    since: Annotated[str | None, Query(alias="from", description="Only this day and later ones")] = None,
    until: Annotated[str | None, Query(alias="to", description="Only days before this one")] = None,
) -> Response:
    """The newest report: size, entries and exits of each segment by day, retention, or the overlap of segments.

    Sorted by segment, then by day or by the other segment. The status is 404 before the first report.
    """
    return JSONResponse(services.reports.page(caller.workspace, ReportRequest(show, segment, since, until), page))
