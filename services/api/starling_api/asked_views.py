"""Edge: the shapes of what is asked about segments and users, for `/openapi.json`."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from starling_api.views import INSTANT, EventView, ProfileView
from starling_segments import json_schema


class EstimateView(BaseModel):
    """How many users, and some of them."""

    estimate: int
    low: int = Field(description="with `high`: holds the true number in 95 of 100 cases")
    high: int
    sample: list[str] = Field(description="ids of at most 20 of them")


class AskedView(BaseModel):
    """How an answer about many users came about."""

    exact: bool = Field(description="every user was asked, and nothing limits the answer")
    users: int = Field(description="about how many users there are")
    asked: int = Field(description="how many of them were asked: drawn by lot, unless all were")
    limits: list[str] = Field(description="why the numbers may be wrong beyond their interval; empty when they cannot be")
    as_of: str | None = Field(description="stream time that the answer reflects; null before the first event")
    took_ms: int


class PreviewView(EstimateView, AskedView):
    """How many users a segment would have."""


class DiffView(AskedView):
    """Who would enter, leave and stay under a changed condition."""

    key: str
    enter: EstimateView
    leave: EstimateView
    stay: EstimateView


class PastMembershipView(BaseModel):
    """A user and a segment that the user is or was in."""

    segment: str
    version: int
    status: Literal["ENTERED", "EXITED"] = Field(description="the last change")
    effective_at: str = Field(description=INSTANT)
    sequence: int


class ExportView(BaseModel):
    """Everything known of a user."""

    user_id: str
    as_of: str | None
    profile: ProfileView | None = Field(description="null for somebody of whom only events came")
    segments: list[PastMembershipView] = Field(description="all that the user is or was in")
    lists: list[str] = Field(description="uploaded lists that the user is on")
    state: dict[str, Any] | None = Field(
        description="what the segmenter keeps: traits, memberships, and of the past what segments ask"
    )
    events: list[EventView] = Field(description="the newest first; kept for 30 days")


class NodeView(BaseModel):
    """One node of a condition."""

    node: str = Field(description="JSON pointer into the segment's document")
    kind: str = Field(description="all, any, none, not, or the kind of the leaf: trait, event, sequence …")
    truth: bool
    observed: Any = Field(description="what the truth was decided from; instants as ISO 8601")
    next_change_at: str | None = Field(description="the earliest instant at which time alone can change it; null: never")
    children: list["NodeView"]


class ExplainView(BaseModel):
    """Why a user is in a segment or not."""

    member: bool
    paused: bool = Field(description="while the segment is, its members stay as they are, whatever the tree says")
    as_of: str = Field(description=INSTANT)
    tree: NodeView


def asked_schema() -> dict[str, Any]:
    """The JSON Schema of a condition that is asked about."""
    return {**json_schema(), "required": ["where"], "title": "A condition to ask about; a segment's whole document will do"}
