"""Edge: what one asks before defining or changing a segment, and why somebody is in one."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse

from starling_api.asked_views import DiffView, ExplainView, PreviewView, asked_schema
from starling_api.kinds import SEGMENTS
from starling_api.requests import Body, UsedServices, Viewer, author_of, parse_json
from starling_api.routes.definitions import PROBLEMS

trial_router = APIRouter(prefix="/v1")

_BODY: Final = {"requestBody": {"required": True, "content": {"application/json": {"schema": asked_schema()}}}}


def _asked(body: Body) -> Any:
    return parse_json(body)


Asked = Annotated[Any, Depends(_asked)]


def _answers(model: Any, *problems: int) -> dict[int | str, dict[str, Any]]:
    return {200: {"model": model}, **{status: PROBLEMS[status] for status in (401, 403, *problems, 503)}}


@trial_router.post(
    "/segments/preview",
    tags=["segments"],
    summary="How many a condition would find",
    responses=_answers(PreviewView, 422),
    openapi_extra=_BODY,
)
def preview(services: UsedServices, caller: Viewer, request: Request, asked: Asked) -> Response:
    """Before anything is defined: a number with its 95 % interval, and some of those who would be in; nothing is stored."""
    known = services.commands.known(SEGMENTS, author_of(request, caller))
    return JSONResponse(services.trials.preview(caller.workspace, asked, known))


@trial_router.post(
    "/segments/{key}/diff",
    tags=["segments"],
    summary="Who would enter and leave under a changed condition",
    responses=_answers(DiffView, 404, 409, 422),
    openapi_extra=_BODY,
)
def diff(key: str, services: UsedServices, caller: Viewer, request: Request, asked: Asked) -> Response:
    """Before anything is changed: how many would enter, leave and stay, and some of each; nothing is stored."""
    known = services.commands.known(SEGMENTS, author_of(request, caller), except_key=key)
    return JSONResponse(services.trials.diff(caller.workspace, key, asked, known))


@trial_router.get(
    "/users/{user_id:path}/explain/{key}",
    tags=["users"],
    summary="Why a user is in a segment or not",
    responses=_answers(ExplainView, 404, 409),
)
def explain(user_id: str, key: str, services: UsedServices, caller: Viewer) -> Response:
    """Each node of the condition: whether it is true, what it was decided from, and when time alone can change that."""
    return JSONResponse(services.trials.explain(caller.workspace, user_id, key))
