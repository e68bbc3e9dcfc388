"""Edge: the routes of messages, consent and suppressions."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response
from fastapi.responses import JSONResponse

from starling_api.definitions.repository import to_json
from starling_api.definitions.routes import COMMON, answered
from starling_api.http.access.auth import Role
from starling_api.http.dependencies import Page, UsedServices, Viewer, Write, unversioned_write_with_body
from starling_api.http.openapi.bodies import body_of
from starling_api.http.paths import USER
from starling_api.http.problems import problems
from starling_api.messages.bodies import requested_consent, requested_suppressions
from starling_api.messages.models import ConsentListModel, ConsentModel, MessagePageModel, SuppressionsModel
from starling_api.messages.shown import as_of, consent_items, messages_page
from starling_api.ports import Stored
from starling_common.time.instants import format_instant
from starling_policy import address_digest

message_router = APIRouter(prefix="/v1", tags=["messages"], responses=problems(*COMMON))


def _shape(model: Any, *statuses: int) -> dict[int | str, dict[str, Any]]:
    return {200: {"model": model}, **problems(*statuses)}


@message_router.get(
    USER + "/messages",
    operation_id="list_user_messages",
    summary="List the messages of campaigns to a user",
    responses=_shape(MessagePageModel),
)
def messages(user_id: str, services: UsedServices, caller: Viewer, page: Page) -> Response:
    """Waiting messages, and the 64 newest decided ones of the last 30 days, with the reason of each decision and every outcome.

    The latest due comes first. `as_of` is the stream time of the messenger; null without one.
    """
    known = services.people.person(caller.workspace, user_id)
    return JSONResponse(messages_page(caller.workspace, user_id, known, page))


@message_router.get(
    USER + "/consent", operation_id="get_user_consent", summary="Read the consent of a user", responses=_shape(ConsentListModel)
)
def consent(user_id: str, services: UsedServices, caller: Viewer) -> Response:
    """Explicit consent overrides the trait `consent`. A purpose that is not listed has the default of the policy."""
    known = services.people.person(caller.workspace, user_id)
    return JSONResponse({"items": consent_items(known), "as_of": as_of(known)})


@message_router.put(
    USER + "/consent",
    operation_id="change_user_consent",
    summary="Change the consent of a user",
    responses=_shape(ConsentModel, 413, 422),
    openapi_extra=body_of("ConsentChange"),
)
def change_consent(
    user_id: str, services: UsedServices, write: Annotated[Write, Depends(unversioned_write_with_body(Role.EDITOR))]
) -> Response:
    """An explicit change is in force until a newer explicit one, whatever traits state later. It is stored before the answer."""

    def act() -> Stored:
        change = requested_consent(write.document)
        at = None if write.dry_run else services.message_topics.consent(write.author, user_id, change)
        shown = {**change._asdict(), "source": "api", "at": None if at is None else format_instant(at)}
        return Stored(200, to_json(shown), None)

    return answered(services, write, act)


@message_router.post(
    "/suppressions/{channel}",
    operation_id="suppress_addresses",
    summary="Suppress addresses",
    responses=_shape(SuppressionsModel, 413, 422),
    openapi_extra=body_of("SuppressionRequest"),
)
def suppress(
    channel: str, services: UsedServices, write: Annotated[Write, Depends(unversioned_write_with_body(Role.ADMIN))]
) -> Response:
    """No message is sent to a suppressed address, transactional ones included. Addresses are stored as SHA-256. Capital letters
    and surrounding spaces make no difference. `suppressed: false` ends a suppression, also one after a bounce or the reply STOP.
    """

    def act() -> Stored:
        wanted = requested_suppressions(channel, write.document)
        if not write.dry_run:
            services.message_topics.suppressions(write.author, channel, wanted)
        count = len({address_digest(address) for address in wanted.addresses})
        return Stored(200, to_json({"channel": channel, "suppressed": wanted.suppressed, "addresses": count}), None)

    return answered(services, write, act)
