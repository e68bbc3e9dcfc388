"""Edge: the routes of segment members and of users."""

from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Depends, Response
from fastapi.responses import JSONResponse

from starling_api.definitions.kinds.kinds import SEGMENTS
from starling_api.definitions.models import VersionPageModel
from starling_api.definitions.routes import COMMON
from starling_api.http.dependencies import Body, Page, UsedServices, Viewer, parse_json
from starling_api.http.openapi.bodies import body_of
from starling_api.http.paths import USER
from starling_api.http.problems import problems
from starling_api.users.models import (
    DayPageModel,
    EventPageModel,
    LookupModel,
    MemberPageModel,
    ProfileModel,
    SizeModel,
    UserSegmentPageModel,
)
from starling_api.users.schema import MAX_LOOKUP
from starling_segments import DefinitionRefused, FieldError

segment_router = APIRouter(prefix="/v1/segments", tags=["segments"], responses=problems(*COMMON, 404))
user_router = APIRouter(prefix="/v1", tags=["users"], responses=problems(*COMMON))


def _shape(model: Any, *statuses: int) -> dict[int | str, dict[str, Any]]:
    return {200: {"model": model}, **problems(*statuses)}


@segment_router.get(
    "/{key}/versions",
    operation_id="list_segment_versions",
    summary="List the changes of a segment",
    responses=_shape(VersionPageModel),
)
def versions(key: str, services: UsedServices, caller: Viewer, page: Page) -> Response:
    """Every change with its author and time, the oldest first."""
    return JSONResponse(services.queries.versions(SEGMENTS, caller.workspace, key, page))


@segment_router.get(
    "/{key}/members",
    operation_id="list_segment_members",
    summary="List the members of a segment",
    responses=_shape(MemberPageModel),
)
def members(key: str, services: UsedServices, caller: Viewer, page: Page) -> Response:
    """The order is arbitrary but stable across pages."""
    return JSONResponse(services.queries.members(caller.workspace, key, page))


@segment_router.get(
    "/{key}/size", operation_id="get_segment_size", summary="Read the number of members", responses=_shape(SizeModel)
)
def size(key: str, services: UsedServices, caller: Viewer) -> Response:
    """Entries and exits since the segment was created, and their difference."""
    return JSONResponse(services.queries.size(caller.workspace, key))


@segment_router.get(
    "/{key}/history",
    operation_id="get_segment_history",
    summary="Read the entries, the exits and the size of each day",
    responses=_shape(DayPageModel),
)
def history(key: str, services: UsedServices, caller: Viewer, page: Page) -> Response:
    """One item for each day (UTC) with a change."""
    return JSONResponse(services.queries.history(caller.workspace, key, page))


@user_router.get(
    USER + "/segments",
    operation_id="list_user_segments",
    summary="List the segments of a user",
    responses=_shape(UserSegmentPageModel),
)
def user_segments(user_id: str, services: UsedServices, caller: Viewer, page: Page) -> Response:
    """The current memberships of the user. An unknown user has none."""
    return JSONResponse(services.queries.memberships(caller.workspace, user_id, page))


@user_router.get(
    USER + "/events",
    operation_id="list_user_events",
    summary="List the latest events of a user",
    responses=_shape(EventPageModel, 409),
)
def user_events(user_id: str, services: UsedServices, caller: Viewer, page: Page) -> Response:
    """Events and delivery outcomes of the last 30 days, the newest first.

    The installation can store them for another time. If it stores none, the answer is 409 `history_off`.
    """
    return JSONResponse(services.queries.events(caller.workspace, user_id, page))


@user_router.get(USER, operation_id="get_user", summary="Read the profile of a user", responses=_shape(ProfileModel, 404))
def profile(user_id: str, services: UsedServices, caller: Viewer) -> Response:
    """The profile after the last change in the read model."""
    return JSONResponse(services.queries.profile(caller.workspace, user_id))


class Lookup(NamedTuple):
    """The users and the segments of a look-up; `segments` None: all segments."""

    users: list[str]
    segments: list[str] | None


def _lookup(body: Body) -> Lookup:
    document = parse_json(body)
    if not isinstance(document, dict):
        raise DefinitionRefused((FieldError("", "wrong_type", "it is not an object", 'an object with "users" and "segments"'),))
    unknown = document.keys() - {"users", "segments"}
    invalid = [
        FieldError(f"/{name}", "unknown_field", "it is not a field of a look-up", "users, segments") for name in sorted(unknown)
    ]
    wanted = Lookup(document.get("users", []), document.get("segments"))
    if not _is_texts(wanted.users, MAX_LOOKUP):
        invalid.append(FieldError("/users", "wrong_type", "it is not a list of user ids", f"1 to {MAX_LOOKUP} user ids"))
    if wanted.segments is not None and not _is_texts(wanted.segments, MAX_LOOKUP):
        expected = f"1 to {MAX_LOOKUP} keys, or null for every segment"
        invalid.append(FieldError("/segments", "wrong_type", "it is not a list of keys", expected))
    if invalid:
        raise DefinitionRefused(tuple(invalid))
    return wanted


def _is_texts(value: object, most: int) -> bool:
    return isinstance(value, list) and 0 < len(value) <= most and all(isinstance(text, str) for text in value)


@user_router.post(
    "/memberships/lookup",
    operation_id="look_up_memberships",
    summary="Look up the segments of many users",
    responses=_shape(LookupModel, 413, 422),
    openapi_extra=body_of("LookupRequest"),
)
def lookup(services: UsedServices, caller: Viewer, wanted: Annotated[Lookup, Depends(_lookup)]) -> Response:
    """For each user the keys of the segments with this user, among the given ones or, without `segments`, among all."""
    return JSONResponse(services.queries.lookup(caller.workspace, wanted.users, wanted.segments))
