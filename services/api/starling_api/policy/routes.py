"""Edge: the route of the policy check."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Response
from fastapi.responses import JSONResponse

from starling_api.definitions.routes import COMMON
from starling_api.http.dependencies import Body, UsedServices, Viewer, parse_definition
from starling_api.http.openapi.bodies import body_of
from starling_api.http.problems import problems
from starling_api.messages.shown import as_of
from starling_api.policy.check import checked, with_known
from starling_api.policy.models import PolicyDecisionModel
from starling_api.policy.request import RequestedCheck, requested_check, with_stored
from starling_messages.state import PersonState

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
    are not considered. Devices, explicit consent, earlier messages and traits come from the messenger unless they are given; traits
    from the profile without one. Suppressions are those that are given. Nothing is stored.
    """
    known = services.people.person(caller.workspace, wanted.user)
    if known is not None and known.state != PersonState():
        wanted = with_known(wanted, known)
    reflected = as_of(known) or services.queries.as_of()
    traits: Any = wanted.traits
    if traits is None:
        traits = services.queries.profile(caller.workspace, wanted.user)["traits"]
    return JSONResponse(checked(wanted, traits, reflected))
