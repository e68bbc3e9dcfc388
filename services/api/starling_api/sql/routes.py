"""Edge: the routes that run a computed trait or a view in SQL outside its schedule."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query, Response

from starling_api.definitions.kinds.kinds import TRAITS, VIEWS
from starling_api.definitions.models import MODELS
from starling_api.definitions.repository import to_json
from starling_api.definitions.routes import COMMON, answered
from starling_api.http.access.auth import Role
from starling_api.http.dependencies import UsedServices, Write, unversioned_write_by
from starling_api.http.problems import problems
from starling_api.ports import Stored

trait_run_router = APIRouter(prefix="/v1/computed-traits", tags=["computed traits"], responses=problems(*COMMON))

view_run_router = APIRouter(prefix="/v1/views", tags=["views"], responses=problems(*COMMON))

_RUN: Final[dict[int | str, dict[str, Any]]] = {200: {"model": MODELS[TRAITS.name]}, **problems(400, 404, 409, 422)}


@trait_run_router.post("/{key}/run", operation_id="run_computed_trait", summary="Run a computed trait in SQL now", responses=_RUN)
def run_computed_trait(
    key: str, services: UsedServices, write: Annotated[Write, Depends(unversioned_write_by(Role.EDITOR))]
) -> Response:
    """The Spark job `sql_traits` begins the run soon. A trait whose run waits or runs gets no second one. The schedule goes on."""

    def act() -> Stored:
        definition = services.sql_traits.run(write.author.workspace, key, dry_run=write.dry_run)
        return Stored(200, to_json(services.queries.document(TRAITS, write.author.workspace, definition)), None)

    return answered(services, write, act)


@view_run_router.post(
    "/{key}/run",
    operation_id="run_view",
    summary="Run a view in SQL now",
    responses={200: {"model": MODELS[VIEWS.name]}, **problems(404, 409, 422)},
)
def run_view(
    key: str,
    services: UsedServices,
    write: Annotated[Write, Depends(unversioned_write_by(Role.EDITOR))],
    *,
    full: Annotated[bool, Query(description="Compute all days of an incremental view")] = False,
) -> Response:
    """The Spark job `sql_traits` begins the run soon. A view whose run waits or runs gets no second one. The schedule goes on."""

    def act() -> Stored:
        definition = services.sql_views.run(write.author.workspace, key, full=full, dry_run=write.dry_run)
        return Stored(200, to_json(services.queries.document(VIEWS, write.author.workspace, definition)), None)

    return answered(services, write, act)
