"""Edge: the response schemas of outcomes of items, for `/openapi.json`."""

from typing import Literal

from pydantic import BaseModel, Field

from starling_api.http.openapi.models import INSTANT, PageModel


class OriginModel(BaseModel):
    """The record of the item in its ingest topic."""

    topic: str
    partition: int
    offset: int


class OutcomeModel(BaseModel):
    """What became of an item."""

    message_id: str
    user_id: str | None
    outcome: Literal["ACCEPTED", "DUPLICATE", "REFUSED"]
    event_id: str | None = Field(description="For an accepted item: the id of its event")
    event_topic: str | None = Field(description="For an accepted item: the topic of its event")
    code: str | None = Field(description="For a refused item: the code of the error")
    message: str | None = Field(description="For a refused item: the reason, and what would be right")
    received_at: str = Field(description=INSTANT)
    decided_at: str = Field(description=INSTANT)
    correlation_id: str = Field(description="Id of the request that sent the item")
    origin: OriginModel


class OutcomePageModel(PageModel[OutcomeModel]):
    """One page of outcomes. A page with few items, or with none, can have a next page."""
