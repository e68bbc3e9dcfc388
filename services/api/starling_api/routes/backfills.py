"""Edge: the runs that gather the past of new segments."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Response
from fastapi.responses import JSONResponse

from starling_api.ports import Stored
from starling_api.repository import to_json
from starling_api.requests import UsedServices, Viewer, Write, order_by
from starling_api.routes.definitions import PROBLEMS, answered
from starling_api.tokens import Role
from starling_api.views import BackfillRunView, BackfillsView

backfill_router = APIRouter(prefix="/v1/backfills", tags=["backfills"])

_READ: dict[int | str, dict[str, Any]] = {200: {"model": BackfillsView}, **{status: PROBLEMS[status] for status in (401, 403, 503)}}
_TURN: dict[int | str, dict[str, Any]] = {
    200: {"model": BackfillRunView},
    **{status: PROBLEMS[status] for status in (401, 403, 404, 422, 503)},
    409: {**PROBLEMS[409], "description": "it has ended"},
}


@backfill_router.get("", summary="List backfills", responses=_READ)
def list_backfills(services: UsedServices, caller: Viewer) -> JSONResponse:
    """Those that concern the workspace, the newest first."""
    return JSONResponse(services.backfills.all(caller.workspace))


@backfill_router.post("/{run}/{what}", summary="Pause, resume or cancel a backfill", responses=_TURN)
def turn_backfill(
    run: str,
    what: Annotated[str, Path(pattern="^(pause|resume|cancel)$")],
    services: UsedServices,
    write: Annotated[Write, Depends(order_by(Role.ADMIN))],
) -> Response:
    """It is heeded between two partitions; a cancelled one can be resumed, and begins anew. Needs an admin: a run may be for
    several workspaces."""

    def act() -> Stored:
        return Stored(200, to_json(services.backfills.turn(write.author.workspace, run, what)), None)

    return answered(services, write, act)
