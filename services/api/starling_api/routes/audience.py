"""Edge: who is in which segment, and what is known about whom."""

from typing import Annotated, Any, Final, NamedTuple

from fastapi import APIRouter, Depends, Response
from fastapi.responses import JSONResponse

from starling_api.kinds import SEGMENTS
from starling_api.requests import Body, Page, UsedServices, Viewer, parse_json
from starling_api.views import (
    DayView,
    EventView,
    LookupView,
    MemberView,
    PageView,
    ProfileView,
    SizeView,
    UserSegmentView,
    VersionView,
)
from starling_segments import DefinitionRefused, Fault

MAX_LOOKUP_USERS: Final = 1000
MAX_LOOKUP_SEGMENTS: Final = 1000

segment_router = APIRouter(prefix="/v1/segments", tags=["segments"])
user_router = APIRouter(prefix="/v1", tags=["users"])


def _shape(model: Any) -> dict[int | str, dict[str, Any]]:
    return {200: {"model": model}}


@segment_router.get("/{key}/versions", summary="The definition's history, who and when", responses=_shape(PageView[VersionView]))
def versions(key: str, services: UsedServices, caller: Viewer, page: Page) -> Response:
    """The oldest change first."""
    return JSONResponse(services.queries.versions(SEGMENTS, caller.workspace, key, page))


@segment_router.get("/{key}/members", summary="The members", responses=_shape(PageView[MemberView]))
def members(key: str, services: UsedServices, caller: Viewer, page: Page) -> Response:
    """In an order of no meaning, which stays the same from page to page."""
    return JSONResponse(services.queries.members(caller.workspace, key, page))


@segment_router.get("/{key}/size", summary="How many members there are now", responses=_shape(SizeView))
def size(key: str, services: UsedServices, caller: Viewer) -> Response:
    """Entries and exits of all time, and their difference."""
    return JSONResponse(services.queries.size(caller.workspace, key))


@segment_router.get("/{key}/history", summary="Entries, exits and size over time", responses=_shape(PageView[DayView]))
def history(key: str, services: UsedServices, caller: Viewer, page: Page) -> Response:
    """One item a day (UTC) on which somebody entered or left."""
    return JSONResponse(services.queries.history(caller.workspace, key, page))


# A user id may hold slashes, so the longer paths come first.
@user_router.get("/users/{user_id:path}/segments", summary="A user's segments", responses=_shape(PageView[UserSegmentView]))
def user_segments(user_id: str, services: UsedServices, caller: Viewer, page: Page) -> Response:
    """Those that the user is in now; somebody never heard of is in none."""
    return JSONResponse(services.queries.memberships(caller.workspace, user_id, page))


@user_router.get("/users/{user_id:path}/events", summary="A user's latest events", responses=_shape(PageView[EventView]))
def user_events(user_id: str, services: UsedServices, caller: Viewer, page: Page) -> Response:
    """The newest first: what the user did, and what became of messages to them; kept for 30 days after they came in."""
    return JSONResponse(services.queries.events(caller.workspace, user_id, page))


profile_router = APIRouter(prefix="/v1", tags=["users"])
"""Included last: its path also matches the longer ones of other modules."""


@profile_router.get("/users/{user_id:path}", summary="A user's profile", responses=_shape(ProfileView))
def profile(user_id: str, services: UsedServices, caller: Viewer) -> Response:
    """Traits as of the last change that the read model shows."""
    return JSONResponse(services.queries.profile(caller.workspace, user_id))


class Asked(NamedTuple):
    """Whom and what a look-up is about; `segments` None: all."""

    users: list[str]
    segments: list[str] | None


def _lookup(body: Body) -> Asked:
    document = parse_json(body)
    if not isinstance(document, dict):
        raise DefinitionRefused((Fault("", "wrong_type", "it is no object", 'an object with "users" and "segments"'),))
    unknown = document.keys() - {"users", "segments"}
    faults = [Fault(f"/{name}", "unknown_field", "it is no field here", "users, segments") for name in sorted(unknown)]
    asked = Asked(document.get("users", []), document.get("segments"))
    if not _is_texts(asked.users, MAX_LOOKUP_USERS):
        faults.append(Fault("/users", "wrong_type", "it is no list of user ids", f"1 to {MAX_LOOKUP_USERS} user ids"))
    if asked.segments is not None and not _is_texts(asked.segments, MAX_LOOKUP_SEGMENTS):
        expected = f"1 to {MAX_LOOKUP_SEGMENTS} keys, or none at all for every segment"
        faults.append(Fault("/segments", "wrong_type", "it is no list of keys", expected))
    if faults:
        raise DefinitionRefused(tuple(faults))
    return asked


def _is_texts(value: object, most: int) -> bool:
    return isinstance(value, list) and 0 < len(value) <= most and all(isinstance(text, str) for text in value)


_LOOKUP_BODY: Final = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["users"],
                    "properties": {
                        "users": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MAX_LOOKUP_USERS},
                        "segments": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MAX_LOOKUP_SEGMENTS},
                    },
                }
            }
        },
    }
}


@user_router.post("/memberships/lookup", summary="Many users at once", responses=_shape(LookupView), openapi_extra=_LOOKUP_BODY)
def lookup(services: UsedServices, caller: Viewer, asked: Annotated[Asked, Depends(_lookup)]) -> Response:
    """For each user which of the segments they are in; without `segments` all that they are in."""
    return JSONResponse(services.queries.lookup(caller.workspace, asked.users, asked.segments))
