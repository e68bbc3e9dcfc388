"""Edge: previews, diffs and explanations of segments."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse

from starling_api.definitions.kinds import SEGMENTS
from starling_api.definitions.routes import COMMON
from starling_api.http.bodies import body_of
from starling_api.http.dependencies import Body, UsedServices, Viewer, author_of, parse_definition
from starling_api.http.paths import USER
from starling_api.http.problems import problems as problems_of
from starling_api.preview.models import DiffView, ExplanationView, PreviewView

trial_router = APIRouter(prefix="/v1")

_BODY: Final = body_of("ConditionRequest")


def _asked(body: Body) -> Any:
    return parse_definition(body)


Asked = Annotated[Any, Depends(_asked)]


def _answers(model: Any, *problems: int) -> dict[int | str, dict[str, Any]]:
    return {200: {"model": model}, **problems_of(*COMMON, *problems)}


@trial_router.post(
    "/segments/preview",
    tags=["segments"],
    operation_id="preview_segment",
    summary="Estimate the number of users of a condition",
    responses=_answers(PreviewView, 413, 422, 501),
    openapi_extra=_BODY,
)
def preview(services: UsedServices, caller: Viewer, request: Request, asked: Asked) -> Response:
    """A number with its 95 % confidence interval, and a sample of the users. Nothing is stored."""
    known = services.commands.known(SEGMENTS, author_of(request, caller))
    return JSONResponse(services.trials.preview(caller.workspace, asked, known))


@trial_router.post(
    "/segments/{key}/diff",
    tags=["segments"],
    operation_id="diff_segment",
    summary="Estimate the entries and exits of a changed condition",
    responses=_answers(DiffView, 404, 409, 413, 422, 501),
    openapi_extra=_BODY,
)
def diff(key: str, services: UsedServices, caller: Viewer, request: Request, asked: Asked) -> Response:
    """The number of users who would enter, leave and stay, and a sample of each. Nothing is stored."""
    known = services.commands.known(SEGMENTS, author_of(request, caller), except_key=key)
    return JSONResponse(services.trials.diff(caller.workspace, key, asked, known))


@trial_router.get(
    USER + "/explain/{key}",
    tags=["users"],
    operation_id="explain_user",
    summary="Explain why a user is in a segment or not",
    responses=_answers(ExplanationView, 404, 409),
)
def explain(user_id: str, key: str, services: UsedServices, caller: Viewer) -> Response:
    """Each node of the condition: its truth, the value that decided, and the next instant at which time alone can change it."""
    return JSONResponse(services.trials.explain(caller.workspace, user_id, key))
