"""Edge: the response schemas of the membership feed, for `/openapi.json`."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from starling_api.http.openapi.models import INSTANT, PageModel


class CauseModel(BaseModel):
    """The cause of a membership change."""

    kind: Literal["EVENT", "TIMER", "DEFINITION", "MERGE", "LIST", "ERASURE", "MANUAL"]
    message_id: str | None
    event_name: str | None


class MembershipChangeModel(BaseModel):
    """A user entered or left a segment: the record of the topic `segments.membership` as JSON."""

    event_id: str
    workspace: str
    user_id: str
    anonymous_ids: list[str]
    segment_key: str
    segment_name: str
    segment_version: int
    status: Literal["ENTERED", "EXITED"]
    sequence: int = Field(description="Number of the change of this user and segment, without gaps")
    effective_at: str = Field(description=INSTANT)
    decided_at: str = Field(description=INSTANT)
    received_at: str = Field(description=INSTANT)
    cause: CauseModel
    correlation_id: str
    traits: dict[str, Any]
    memberships: list[str] = Field(description="Keys of all segments of the user after this change")


class FeedPageModel(PageModel[MembershipChangeModel]):
    """One page of the membership feed. A page with few items, or with none, can have a next page."""

    cursor: str = Field(description="Position after this page, also at the end of the feed: `after` of a later request")
