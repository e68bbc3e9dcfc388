"""Edge: the response schemas of messages, consent and suppressions, for `/openapi.json`."""

from typing import Literal

from pydantic import BaseModel, Field

from starling_api.http.openapi.models import INSTANT, AsOf, PageModel


class MessageOutcomeModel(BaseModel):
    """One outcome of a message."""

    outcome: str
    at: str = Field(description=INSTANT)
    reason: str | None
    value: float | None = Field(description="The value of a conversion")


class MessageModel(BaseModel):
    """One message of a campaign to a user."""

    delivery_id: str
    campaign: str
    instance: str = Field(description="What the message is for: the sequence of a membership change, or the id of an event")
    version: int | None = Field(description="Version of the campaign at the decision")
    variant: str | None
    due_at: str = Field(description=INSTANT)
    decided_at: str | None = Field(description=INSTANT)
    status: Literal["pending", "requested", "held_out", "dropped"]
    reason: str | None = Field(description="Why the message was dropped")
    outcomes: list[MessageOutcomeModel]


class MessagePageModel(PageModel[MessageModel]):
    """One page of the messages of a user."""


class ConsentModel(BaseModel):
    """The consent to one purpose of a channel."""

    channel: str
    purpose: str | None = Field(description="null: every purpose of the channel")
    granted: bool
    source: str = Field(description="api, page or another way of an explicit change; trait without one")
    at: str | None = Field(description="Instant of the explicit change")


class ConsentListModel(BaseModel):
    """The consent of a user."""

    items: list[ConsentModel]
    as_of: AsOf


class SuppressionsModel(BaseModel):
    """Suppressed addresses."""

    channel: str
    suppressed: bool
    addresses: int = Field(description="Number of different addresses")
