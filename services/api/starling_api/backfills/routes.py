"""Edge: the backfill runs that gather the history of new segments."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Response
from fastapi.responses import JSONResponse

from starling_api.backfills.models import BackfillListModel, BackfillRunModel
from starling_api.definitions.repository import to_json
from starling_api.definitions.routes import answered
from starling_api.http.access.auth import Role
from starling_api.http.dependencies import UsedServices, Viewer, Write, unversioned_write_by
from starling_api.http.problems import problems
from starling_api.ports import Stored

backfill_router = APIRouter(prefix="/v1/backfills", tags=["backfills"], responses=problems(401, 403, 500, 503))

_READ: dict[int | str, dict[str, Any]] = {200: {"model": BackfillListModel}}
_CONTROL: dict[int | str, dict[str, Any]] = {200: {"model": BackfillRunModel}, **problems(400, 404, 409, 422)}


@backfill_router.get("", operation_id="list_backfills", summary="List backfills", responses=_READ)
def list_backfills(services: UsedServices, caller: Viewer) -> JSONResponse:
    """The runs for segments of this workspace, the newest first."""
    return JSONResponse(services.backfills.all(caller.workspace))


@backfill_router.post(
    "/{run}/{action}", operation_id="control_backfill", summary="Pause, resume or cancel a backfill", responses=_CONTROL
)
def control_backfill(
    run: str,
    action: Literal["pause", "resume", "cancel"],
    services: UsedServices,
    write: Annotated[Write, Depends(unversioned_write_by(Role.ADMIN))],
) -> Response:
    """The job applies the request between two partitions. A cancelled run can be resumed and starts again. Needs the role admin,
    because a run can have segments of several workspaces.
    """

    def act() -> Stored:
        return Stored(200, to_json(services.backfills.control(write.author.workspace, run, action, dry_run=write.dry_run)), None)

    return answered(services, write, act)
