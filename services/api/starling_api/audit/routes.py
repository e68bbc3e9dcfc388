"""Edge: the audit log over HTTP."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response
from fastapi.responses import JSONResponse

from starling_api.audit.audit import AuditFilter
from starling_api.definitions.routes import COMMON
from starling_api.feed.routes import MAX_CURSOR
from starling_api.http.access.auth import Caller, Role
from starling_api.http.dependencies import UsedServices, at_least
from starling_api.http.openapi.models import AuditPageModel
from starling_api.http.pagination import DEFAULT_LIMIT, MAX_LIMIT
from starling_api.http.problems import problems

audit_router = APIRouter(prefix="/v1/audit", tags=["audit"])

_TEXT = 200


@audit_router.get(
    "",
    operation_id="list_audit",
    summary="List changes with their actors",
    responses={200: {"model": AuditPageModel}, **problems(*COMMON, 410)},
)
def audit(  # noqa: PLR0913, PLR0917 - the query's parameters
    services: UsedServices,
    caller: Annotated[Caller, Depends(at_least(Role.ADMIN))],
    actor: Annotated[
        str | None, Query(max_length=_TEXT, description="Only changes by this token: an id, or a name of the settings")
    ] = None,
    resource: Annotated[str | None, Query(max_length=_TEXT, description="Only of this collection, such as `segments`")] = None,
    of_key: Annotated[
        str | None, Query(alias="resource_key", max_length=_TEXT, description="Only of the resource with this key or id")
    ] = None,
    since: Annotated[
        str | None, Query(max_length=40, description="Only changes at this instant or later; default: 30 days ago")
    ] = None,
    cursor: Annotated[
        str | None, Query(max_length=MAX_CURSOR, description="`next_cursor` of the previous page, with the same other parameters")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Maximum number of items")] = DEFAULT_LIMIT,
) -> Response:
    """Every successful write of the API in this workspace, the oldest first. Dry runs and repetitions are left out.

    One page scans a bounded number of records, so it can be short or empty and still have a `next_cursor`. `as_of` is the time of
    the request. Needs the role admin.
    """
    wanted = AuditFilter(actor, resource, of_key, since)
    return JSONResponse(services.audit.page(caller.workspace, wanted, cursor, limit))
