"""Edge: the shapes of previews, diffs, explanations and exports, for `/openapi.json`."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from starling_api.http.models import INSTANT, AsOf, EventView, ProfileView


class EstimateView(BaseModel):
    """A number of users, and a sample of them."""

    estimate: int
    low: int = Field(description="Lower end of the 95 % confidence interval")
    high: int = Field(description="Upper end of the 95 % confidence interval")
    sample: list[str] = Field(description="Up to 20 user ids")


class SurveyView(BaseModel):
    """How the numbers of an answer were found."""

    exact: bool = Field(description="True when every user was evaluated and there are no limitations")
    users: int = Field(description="Estimated number of all users")
    asked: int = Field(description="Number of users that were evaluated: all of them, or a random sample")
    limits: list[str] = Field(description="Limitations that the confidence interval does not cover")
    as_of: AsOf
    took_ms: int


class PreviewView(EstimateView, SurveyView):
    """The number of users that a segment would have."""


class DiffView(SurveyView):
    """The users who would enter, leave and stay under a changed condition."""

    key: str
    enter: EstimateView
    leave: EstimateView
    stay: EstimateView


class PastMembershipView(BaseModel):
    """A segment that a user is or was in."""

    segment: str
    version: int
    status: Literal["ENTERED", "EXITED"] = Field(description="The last change")
    effective_at: str = Field(description=INSTANT)
    sequence: int


class ExportView(BaseModel):
    """All data of one user."""

    user_id: str
    as_of: AsOf
    profile: ProfileView | None = Field(description="Null for a user without a profile")
    segments: list[PastMembershipView] = Field(description="Segments that the user is or was in")
    lists: list[str] = Field(description="Keys of the uploaded lists with this user")
    state: dict[str, Any] | None = Field(description="State of the segmenter: traits, memberships and aggregates")
    events: list[EventView] = Field(description="Events of the last 30 days, the newest first")


class NodeView(BaseModel):
    """One node of a condition."""

    node: str = Field(description="JSON pointer into the segment's document")
    kind: str = Field(description="`all`, `any`, `none`, `not`, or the kind of the condition such as `trait` or `event`")
    truth: bool
    observed: Any = Field(description="The value that decided; instants as ISO 8601")
    next_change_at: str | None = Field(description="The earliest instant of a change without a new event; null for never")
    children: list["NodeView"]


class ExplanationView(BaseModel):
    """The reason why a user is in a segment, or is not."""

    member: bool
    paused: bool = Field(description="True while the segment is paused: its members stay as they are, whatever the tree states")
    as_of: str = Field(description=INSTANT)
    tree: NodeView
