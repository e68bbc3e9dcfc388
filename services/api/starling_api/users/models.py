"""Edge: the response schemas of the members of segments, and of single users, for `/openapi.json`."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from starling_api.http.openapi.models import INSTANT, AsOf, PageModel


class MemberModel(BaseModel):
    """One member of a segment."""

    user_id: str
    entered_at: str = Field(description=INSTANT)
    sequence: int = Field(description="Number of the membership change of this user and segment")


class MemberPageModel(PageModel[MemberModel]):
    """One page of the members of a segment."""


class SizeModel(BaseModel):
    """The number of members of a segment."""

    key: str
    size: int
    entered: int = Field(description="Entries since the segment was created")
    exited: int = Field(description="Exits since the segment was created")
    as_of: AsOf


class DayModel(BaseModel):
    """The entries and exits of one day (UTC), and the size at its end."""

    day: str
    entered: int
    exited: int
    size: int


class DayPageModel(PageModel[DayModel]):
    """One page of days."""


class ProfileModel(BaseModel):
    """The profile of one user."""

    user_id: str
    anonymous_ids: list[str]
    traits: dict[str, Any]
    group_id: str | None
    updated_at: str = Field(description=INSTANT)
    as_of: AsOf


class UserSegmentModel(BaseModel):
    """One segment of which a user is a member."""

    segment: str
    version: int
    entered_at: str = Field(description=INSTANT)
    sequence: int = Field(description="Number of the membership change of this user and segment")


class UserSegmentPageModel(PageModel[UserSegmentModel]):
    """One page of the segments of a user."""


class EventModel(BaseModel):
    """One event of a user, or one delivery outcome."""

    event_id: str
    kind: Literal["track", "page", "screen", "delivery"]
    name: str
    time: str = Field(description=INSTANT)
    received_at: str = Field(description=INSTANT)
    message_id: str | None
    properties: dict[str, Any] = Field(description="Of a delivery: channel, outcome, attempt and further details")
    context: dict[str, Any]
    correlation_id: str


class EventPageModel(PageModel[EventModel]):
    """One page of the events of a user."""


class LookupModel(BaseModel):
    """The segments of each user."""

    memberships: dict[str, list[str]]
    as_of: AsOf
