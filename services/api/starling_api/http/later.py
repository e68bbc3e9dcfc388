"""Edge: what the contract promises and this version does not do yet: answered 501, never by a fake."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from fastapi import APIRouter, Depends, Response

from starling_api.http.auth import Role
from starling_api.http.dependencies import at_least
from starling_api.http.errors import NotYet
from starling_api.http.paths import USER
from starling_api.http.problems import problems


class Later(NamedTuple):
    """One route to come."""

    method: str
    operation: str
    path: str
    role: Role
    what: str


LATER: Final = (
    Later("DELETE", "delete_user", f"/v1{USER}", Role.ADMIN, "forget a user"),
    Later("POST", "create_campaign", "/v1/campaigns", Role.MARKETER, "define what to send on entry or exit"),
    Later("GET", "list_campaigns", "/v1/campaigns", Role.VIEWER, "list campaigns"),
    Later("GET", "get_campaign", "/v1/campaigns/{key}", Role.VIEWER, "read a campaign"),
    Later("PUT", "update_campaign", "/v1/campaigns/{key}", Role.MARKETER, "change a campaign"),
    Later("DELETE", "archive_campaign", "/v1/campaigns/{key}", Role.MARKETER, "archive a campaign"),
)


def later_routes() -> APIRouter:
    """A route for each, in the OpenAPI document too."""
    router = APIRouter()
    for one in LATER:
        router.add_api_route(
            one.path,
            _not_yet(one),
            methods=[one.method],
            tags=["users" if "users" in one.path else "campaigns"],
            summary=f"Not available yet: {one.what}",
            operation_id=one.operation,
            dependencies=[Depends(at_least(one.role)), *_parameter(one)],
            status_code=501,
            responses=problems(401, 403, 500, 501),
        )
    return router


def _not_yet(one: Later) -> Callable[[], Response]:
    def answer() -> Response:
        raise NotYet(f"{one.method} {one.path.replace(':id', '')} is not available yet; it will: {one.what}")

    return answer


def _parameter(one: Later) -> list[Any]:
    """Declares the path's parameter."""

    def key_of(key: str) -> str:
        return key

    def user_of(user_id: str) -> str:
        return user_id

    return [Depends(user_of)] if "{user_id" in one.path else [Depends(key_of)] if "{key}" in one.path else []
