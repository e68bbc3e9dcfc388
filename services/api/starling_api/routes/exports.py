"""Edge: everything known of a user, as one JSON document that is written while it is read."""

from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response
from fastapi.responses import StreamingResponse

from starling_api.asked_views import ExportView
from starling_api.repository import to_json
from starling_api.requests import UsedServices, at_least
from starling_api.routes.definitions import PROBLEMS
from starling_api.tokens import Caller, Role

export_router = APIRouter(prefix="/v1", tags=["users"])

_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"model": ExportView},
    **{status: PROBLEMS[status] for status in (401, 403, 404, 503)},
}


@export_router.get("/users/{user_id:path}/export", summary="Everything known about a user", responses=_ANSWERS)
def export(user_id: str, services: UsedServices, caller: Annotated[Caller, Depends(at_least(Role.ADMIN))]) -> Response:
    """Profile, segments the user is or was in, lists, the segmenter's state and all events that are kept."""
    known, events = services.exports.export(caller.workspace, user_id)
    return StreamingResponse(_written(known, events), media_type="application/json")


def _written(known: dict[str, Any], events: Iterator[dict[str, Any]]) -> Iterator[str]:
    yield to_json(known)[:-1] + ',"events":['
    for number, event in enumerate(events):
        yield ("," if number else "") + to_json(event)
    yield "]}"
