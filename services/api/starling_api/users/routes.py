"""Edge: members of segments, and what is known about users."""

from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Depends, Response
from fastapi.responses import JSONResponse

from starling_api.definitions.kinds import SEGMENTS
from starling_api.definitions.routes import COMMON
from starling_api.http.bodies import MAX_LOOKUP, body_of
from starling_api.http.dependencies import Body, Page, UsedServices, Viewer, parse_json
from starling_api.http.models import (
    DayPageView,
    EventPageView,
    LookupView,
    MemberPageView,
    ProfileView,
    SizeView,
    UserSegmentPageView,
    VersionPageView,
)
from starling_api.http.paths import USER
from starling_api.http.problems import problems
from starling_segments import DefinitionRefused, FieldError

segment_router = APIRouter(prefix="/v1/segments", tags=["segments"], responses=problems(*COMMON, 404))
user_router = APIRouter(prefix="/v1", tags=["users"], responses=problems(*COMMON))


def _shape(model: Any, *statuses: int) -> dict[int | str, dict[str, Any]]:
    return {200: {"model": model}, **problems(*statuses)}


@segment_router.get(
    "/{key}/versions",
    operation_id="list_segment_versions",
    summary="List the changes of a segment",
    responses=_shape(VersionPageView),
)
def versions(key: str, services: UsedServices, caller: Viewer, page: Page) -> Response:
    """Every change with its author and time, the oldest first."""
    return JSONResponse(services.queries.versions(SEGMENTS, caller.workspace, key, page))


@segment_router.get(
    "/{key}/members", operation_id="list_segment_members", summary="List the members of a segment", responses=_shape(MemberPageView)
)
def members(key: str, services: UsedServices, caller: Viewer, page: Page) -> Response:
    """The order is arbitrary, and the same on every page."""
    return JSONResponse(services.queries.members(caller.workspace, key, page))


@segment_router.get(
    "/{key}/size", operation_id="get_segment_size", summary="Read the number of members", responses=_shape(SizeView)
)
def size(key: str, services: UsedServices, caller: Viewer) -> Response:
    """Entries and exits since the segment was created, and their difference."""
    return JSONResponse(services.queries.size(caller.workspace, key))


@segment_router.get(
    "/{key}/history",
    operation_id="get_segment_history",
    summary="Read the entries, the exits and the size of each day",
    responses=_shape(DayPageView),
)
def history(key: str, services: UsedServices, caller: Viewer, page: Page) -> Response:
    """One item for each day (UTC) with a change."""
    return JSONResponse(services.queries.history(caller.workspace, key, page))


@user_router.get(
    USER + "/segments",
    operation_id="list_user_segments",
    summary="List the segments of a user",
    responses=_shape(UserSegmentPageView),
)
def user_segments(user_id: str, services: UsedServices, caller: Viewer, page: Page) -> Response:
    """The segments that the user is in now. An unknown user is in none."""
    return JSONResponse(services.queries.memberships(caller.workspace, user_id, page))


@user_router.get(
    USER + "/events", operation_id="list_user_events", summary="List the latest events of a user", responses=_shape(EventPageView)
)
def user_events(user_id: str, services: UsedServices, caller: Viewer, page: Page) -> Response:
    """Events and delivery outcomes of the last 30 days, the newest first."""
    return JSONResponse(services.queries.events(caller.workspace, user_id, page))


@user_router.get(USER, operation_id="get_user", summary="Read the profile of a user", responses=_shape(ProfileView, 404))
def profile(user_id: str, services: UsedServices, caller: Viewer) -> Response:
    """The traits after the last change that the read model shows."""
    return JSONResponse(services.queries.profile(caller.workspace, user_id))


class Asked(NamedTuple):
    """The users and the segments of a look-up; `segments` None: all."""

    users: list[str]
    segments: list[str] | None


def _lookup(body: Body) -> Asked:
    document = parse_json(body)
    if not isinstance(document, dict):
        raise DefinitionRefused((FieldError("", "wrong_type", "it is not an object", 'an object with "users" and "segments"'),))
    unknown = document.keys() - {"users", "segments"}
    faults = [FieldError(f"/{name}", "unknown_field", "there is no such field", "users, segments") for name in sorted(unknown)]
    asked = Asked(document.get("users", []), document.get("segments"))
    if not _is_texts(asked.users, MAX_LOOKUP):
        faults.append(FieldError("/users", "wrong_type", "it is not a list of user ids", f"1 to {MAX_LOOKUP} user ids"))
    if asked.segments is not None and not _is_texts(asked.segments, MAX_LOOKUP):
        expected = f"1 to {MAX_LOOKUP} keys, or null for every segment"
        faults.append(FieldError("/segments", "wrong_type", "it is not a list of keys", expected))
    if faults:
        raise DefinitionRefused(tuple(faults))
    return asked


def _is_texts(value: object, most: int) -> bool:
    return isinstance(value, list) and 0 < len(value) <= most and all(isinstance(text, str) for text in value)


@user_router.post(
    "/memberships/lookup",
    operation_id="look_up_memberships",
    summary="Look up the segments of many users",
    responses=_shape(LookupView, 413, 422),
    openapi_extra=body_of("LookupRequest"),
)
def lookup(services: UsedServices, caller: Viewer, asked: Annotated[Asked, Depends(_lookup)]) -> Response:
    """For each user the keys of the given segments that the user is in; without `segments`, of all segments."""
    return JSONResponse(services.queries.lookup(caller.workspace, asked.users, asked.segments))
