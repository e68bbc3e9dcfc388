"""Edge: the response schemas of previews, diffs, explanations and exports, for `/openapi.json`."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from starling_api.http.openapi.models import INSTANT, AsOf
from starling_api.users.models import EventModel, ProfileModel


class EstimateModel(BaseModel):
    """A number of users, and a sample of them."""

    estimate: int
    low: int = Field(description="Lower end of the 95 % confidence interval")
    high: int = Field(description="Upper end of the 95 % confidence interval")
    sample: list[str] = Field(description="Up to 20 user ids")


class SamplingModel(BaseModel):
    """The accuracy of an estimate."""

    exact: bool = Field(description="Whether every user was evaluated and no limitation applies")
    users: int = Field(description="Estimated number of all users")
    asked: int = Field(description="Number of evaluated users: all users, or a random sample")
    limits: list[str] = Field(description="Limitations that the confidence interval does not cover")
    as_of: AsOf
    took_ms: int


class PreviewModel(EstimateModel, SamplingModel):
    """The number of users that a segment would have."""


class DiffModel(SamplingModel):
    """The users that would enter, leave and stay under a changed condition."""

    key: str
    enter: EstimateModel
    leave: EstimateModel
    stay: EstimateModel


class PastMembershipModel(BaseModel):
    """A current or former membership of a user."""

    segment: str
    version: int
    status: Literal["ENTERED", "EXITED"] = Field(description="The last change")
    effective_at: str = Field(description=INSTANT)
    sequence: int


class ExportModel(BaseModel):
    """All data of one user."""

    user_id: str
    as_of: AsOf
    profile: ProfileModel | None = Field(description="Null for a user without a profile")
    segments: list[PastMembershipModel] = Field(description="Current and former memberships")
    lists: list[str] = Field(description="Keys of the uploaded lists with this user")
    state: dict[str, Any] | None = Field(description="State of the segmenter: traits, memberships and aggregates")
    events: list[EventModel] = Field(description="Events of the last 30 days, the newest first")


class NodeModel(BaseModel):
    """One node of a condition."""

    node: str = Field(description="JSON pointer into the segment's document")
    kind: str = Field(description="`all`, `any`, `none`, `not`, or the kind of the condition such as `trait` or `event`")
    truth: bool
    observed: Any = Field(description="The value that the condition was evaluated on; instants in ISO 8601")
    next_change_at: str | None = Field(
        description="The earliest instant at which the truth can change without a new event; null for never"
    )
    children: list["NodeModel"]


class ExplanationModel(BaseModel):
    """The reason why a user is in a segment, or is not."""

    member: bool
    paused: bool = Field(description="True while the segment is paused: its members stay unchanged, whatever the tree states")
    as_of: str = Field(description=INSTANT)
    tree: NodeModel
