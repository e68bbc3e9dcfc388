"""Edge: the export of all data of a user, as one streamed JSON document."""

from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response
from fastapi.responses import StreamingResponse

from starling_api.definitions.repository import to_json
from starling_api.definitions.routes import COMMON
from starling_api.http.access.auth import Caller, Role
from starling_api.http.dependencies import UsedServices, at_least
from starling_api.http.paths import USER
from starling_api.http.problems import problems
from starling_api.preview.models import ExportModel

export_router = APIRouter(prefix="/v1", tags=["users"])

_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"model": ExportModel},
    **problems(*COMMON, 404, 429),
}


@export_router.get(USER + "/export", operation_id="export_user", summary="Export all data of a user", responses=_ANSWERS)
def export(user_id: str, services: UsedServices, caller: Annotated[Caller, Depends(at_least(Role.ADMIN))]) -> Response:
    """Profile, memberships, lists, the state of the segmenter and the events of the last 30 days. Needs the role admin."""
    with services.gate.admitted(caller.workspace):
        document, events = services.exports.export(caller.workspace, user_id)
    return StreamingResponse(_json_chunks(document, events), media_type="application/json")


def _json_chunks(document: dict[str, Any], events: Iterator[dict[str, Any]]) -> Iterator[str]:
    yield to_json(document)[:-1] + ',"events":['
    for number, event in enumerate(events):
        yield ("," if number else "") + to_json(event)
    yield "]}"
