"""Edge: the route of the policy check."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Response
from fastapi.responses import JSONResponse

from starling_api.definitions.routes import COMMON
from starling_api.http.dependencies import Body, UsedServices, Viewer, parse_definition
from starling_api.http.openapi.bodies import body_of
from starling_api.http.problems import problems
from starling_api.policy.check import checked
from starling_api.policy.models import PolicyDecisionModel
from starling_api.policy.request import RequestedCheck, requested_check, with_stored

policy_router = APIRouter(prefix="/v1/policy", tags=["policy"])

_BODY: Final = body_of("PolicyCheck")


def _requested(body: Body, services: UsedServices, caller: Viewer) -> RequestedCheck:
    def stored(kind: str, key: str) -> Mapping[str, Any] | None:
        found = services.queries.reader.definition(caller.workspace, kind, key)
        return None if found is None else found.document

    return requested_check(with_stored(parse_definition(body), stored), services.commands.zone_of(caller.workspace))


@policy_router.post(
    "/check",
    operation_id="check_policy",
    summary="Check whether a message to a user would be sent",
    responses={200: {"model": PolicyDecisionModel}, **problems(*COMMON, 404, 413, 422)},
    openapi_extra=_BODY,
)
def check(services: UsedServices, caller: Viewer, wanted: Annotated[RequestedCheck, Depends(_requested)]) -> Response:
    """The decision about a message that is due at `at`, with the result of every check. Membership, cancelling events and rivals
    are not considered. Traits come from the profile unless they are given. Nothing is stored.
    """
    as_of = services.queries.as_of()
    traits: Any = wanted.traits
    if traits is None:
        traits = services.queries.profile(caller.workspace, wanted.user)["traits"]
    return JSONResponse(checked(wanted, traits, as_of))
