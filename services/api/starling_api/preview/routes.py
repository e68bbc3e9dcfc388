"""Edge: the routes of previews, diffs and explanations."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse

from starling_api.definitions.kinds.kinds import SEGMENTS
from starling_api.definitions.routes import COMMON
from starling_api.http.dependencies import Body, UsedServices, Viewer, author_of, parse_definition
from starling_api.http.openapi.bodies import body_of
from starling_api.http.paths import USER
from starling_api.http.problems import problems as problems_of
from starling_api.preview.models import DiffModel, ExplanationModel, PreviewModel

preview_router = APIRouter(prefix="/v1")

_BODY: Final = body_of("ConditionRequest")


def _preview_request(body: Body) -> Any:
    return parse_definition(body)


PreviewRequest = Annotated[Any, Depends(_preview_request)]


def _answers(model: Any, *problems: int) -> dict[int | str, dict[str, Any]]:
    return {200: {"model": model}, **problems_of(*COMMON, *problems)}


@preview_router.post(
    "/segments/preview",
    tags=["segments"],
    operation_id="preview_segment",
    summary="Estimate the number of users of a condition",
    responses=_answers(PreviewModel, 413, 422, 429, 501),
    openapi_extra=_BODY,
)
def preview(services: UsedServices, caller: Viewer, request: Request, wanted: PreviewRequest) -> Response:
    """The estimated number with its 95 % confidence interval, and a sample of the users. Nothing is stored."""
    known = services.commands.known(SEGMENTS, author_of(request, caller))
    with services.gate.admitted(caller.workspace):
        return JSONResponse(services.previews.preview(caller.workspace, wanted, known))


@preview_router.post(
    "/segments/{key}/diff",
    tags=["segments"],
    operation_id="diff_segment",
    summary="Estimate the entries and exits of a changed condition",
    responses=_answers(DiffModel, 404, 409, 413, 422, 429, 501),
    openapi_extra=_BODY,
)
def diff(key: str, services: UsedServices, caller: Viewer, request: Request, wanted: PreviewRequest) -> Response:
    """The number of users that would enter, leave and stay, with a sample of each. Nothing is stored."""
    known = services.commands.known(SEGMENTS, author_of(request, caller), except_key=key)
    with services.gate.admitted(caller.workspace):
        return JSONResponse(services.previews.diff(caller.workspace, key, wanted, known))


@preview_router.get(
    USER + "/explain/{key}",
    tags=["users"],
    operation_id="explain_user",
    summary="Explain why a user is in a segment or not",
    responses=_answers(ExplanationModel, 404, 409),
)
def explain(user_id: str, key: str, services: UsedServices, caller: Viewer) -> Response:
    """Each node of the condition: its truth, the observed value, and the next instant at which time alone can change the truth."""
    return JSONResponse(services.previews.explain(caller.workspace, user_id, key))
