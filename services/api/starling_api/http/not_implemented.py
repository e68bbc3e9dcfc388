"""Edge: the operations of the contract that are not implemented yet. Each returns 501."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from fastapi import APIRouter, Depends, Response

from starling_api.http.access.auth import Role
from starling_api.http.dependencies import at_least
from starling_api.http.errors import NotAvailable
from starling_api.http.paths import USER
from starling_api.http.problems import problems


class PlannedRoute(NamedTuple):
    """One planned route."""

    method: str
    operation: str
    path: str
    role: Role
    what: str


PLANNED: Final = (PlannedRoute("DELETE", "delete_user", f"/v1{USER}", Role.ADMIN, "erase a user"),)


def planned_routes() -> APIRouter:
    """Return the planned routes, which the OpenAPI document contains too."""
    router = APIRouter()
    for one in PLANNED:
        router.add_api_route(
            one.path,
            _not_yet(one),
            methods=[one.method],
            tags=["users"],
            summary=f"Not available yet: {one.what}",
            operation_id=one.operation,
            dependencies=[Depends(at_least(one.role)), *_parameter(one)],
            status_code=501,
            responses=problems(401, 403, 500, 501),
        )
    return router


def _not_yet(one: PlannedRoute) -> Callable[[], Response]:
    def answer() -> Response:
        raise NotAvailable(f"{one.method} {one.path.replace(':id', '')} is not available yet. Planned: {one.what}")

    return answer


def _parameter(one: PlannedRoute) -> list[Any]:
    """Return a dependency that declares the parameter of the path."""

    def user_of(user_id: str) -> str:
        return user_id

    return [Depends(user_of)] if "{user_id" in one.path else []
