"""Edge: what the contract promises and this version does not do yet: answered 501, never by a fake."""

from collections.abc import Callable
from typing import Final, NamedTuple

from fastapi import APIRouter, Depends, Response

from starling_api.errors import NotYet
from starling_api.requests import at_least
from starling_api.tokens import Role
from starling_api.views import ProblemView


class Later(NamedTuple):
    """One route to come."""

    method: str
    path: str
    role: Role
    what: str


LATER: Final = (
    Later("DELETE", "/v1/users/{user_id:path}", Role.ADMIN, "forget a user"),
    Later("POST", "/v1/campaigns", Role.MARKETER, "define what to send on entry or exit"),
    Later("GET", "/v1/campaigns", Role.VIEWER, "list campaigns"),
    Later("GET", "/v1/campaigns/{key}", Role.VIEWER, "read a campaign"),
    Later("PUT", "/v1/campaigns/{key}", Role.MARKETER, "change a campaign"),
    Later("DELETE", "/v1/campaigns/{key}", Role.MARKETER, "archive a campaign"),
)


def later_routes() -> APIRouter:
    """A route for each, in the OpenAPI document too."""
    router = APIRouter(tags=["not yet"])
    for one in LATER:
        router.add_api_route(
            one.path,
            _not_yet(one),
            methods=[one.method],
            summary=f"Not yet: {one.what}",
            operation_id=f"{one.method}_{one.path}",
            dependencies=[Depends(at_least(one.role))],
            status_code=501,
            responses={501: {"model": ProblemView, "description": "not yet"}},
        )
    return router


def _not_yet(one: Later) -> Callable[[], Response]:
    def answer() -> Response:
        raise NotYet(f"{one.method} {one.path.replace(':path', '')} is not built yet; it will: {one.what}")

    return answer
