"""Edge: the audit log over HTTP."""

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Response
from fastapi.responses import JSONResponse

from starling_api.audit.audit import AuditFilter
from starling_api.audit.models import AuditPageModel
from starling_api.definitions.routes import COMMON
from starling_api.http.access.auth import Caller, Role
from starling_api.http.dependencies import Page, UsedServices, at_least
from starling_api.http.problems import problems

audit_router = APIRouter(prefix="/v1/audit", tags=["audit"])

_TEXT = 200


@audit_router.get(
    "",
    operation_id="list_audit",
    summary="List changes with their actors",
    responses={200: {"model": AuditPageModel}, **problems(*COMMON)},
)
def audit(  # noqa: PLR0913, PLR0917 - the query's parameters
    services: UsedServices,
    caller: Annotated[Caller, Depends(at_least(Role.ADMIN))],
    page: Page,
    actor: Annotated[
        str | None, Query(max_length=_TEXT, description="Only changes by this token: an id, or a name of the settings")
    ] = None,
    method: Annotated[Literal["POST", "PUT", "DELETE"] | None, Query(description="Only requests with this method")] = None,
    resource: Annotated[str | None, Query(max_length=_TEXT, description="Only of this collection, such as `segments`")] = None,
    of_key: Annotated[
        str | None, Query(alias="resource_key", max_length=_TEXT, description="Only of the resource with this key or id")
    ] = None,
    since: Annotated[
        str | None, Query(max_length=40, description="Only changes at this instant or later; default: 30 days ago")
    ] = None,
) -> Response:
    """Every successful write of the API in this workspace, the oldest first. Dry runs and repetitions are left out.

    A write is listed about a second after its response. One page scans a bounded number of changes, so it can be short or empty and
    still have a `next_cursor`. `as_of` is the time of the request. Needs the role admin.
    """
    wanted = AuditFilter(actor, method, resource, of_key, since)
    return JSONResponse(services.audit.page(caller.workspace, wanted, page))
