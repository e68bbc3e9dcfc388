"""Edge: the response schemas of previews and dry runs, for `/openapi.json`."""

from typing import Literal

from pydantic import BaseModel, Field

from starling_api.http.openapi.models import AsOf, NextCursor


class SmsSizeModel(BaseModel):
    """The size of an SMS. `units`: septets of GSM-7, or 16-bit units of UCS-2."""

    encoding: Literal["GSM-7", "UCS-2"]
    units: int
    segments: int


class CampaignPreviewModel(BaseModel):
    """A rendered message. It has one more field for each part of the channel, such as `subject`, `html` and `text`."""

    model_config = {"extra": "allow"}

    missing: list[str] = Field(description="Paths of missing values without a default; with any, the message would be dropped")
    variant: str
    held_out: bool = Field(description="Whether the user is in the campaign's holdout")
    locale: str | None
    sms: SmsSizeModel | None
    verdict: None = Field(description="Always null in this version")  # vocabulary: verdict: a field of the contract
    verdict_reason: str = Field(  # vocabulary: verdict: a field of the contract
        description="Why the answer does not state whether the message would be sent"
    )
    as_of: AsOf


class VariantCountModel(BaseModel):
    """The number of counted members of one variant."""

    variant: str
    held_out: bool
    count: int


class DryRunModel(BaseModel):
    """The number of members in each variant and in the holdout, of the members counted in this answer."""

    segment: str
    size: int = Field(description="Number of all members")
    counted: int = Field(description="Number of members in this answer: add up the answers of all cursors")
    counts: list[VariantCountModel]
    verdict: None = Field(description="Always null in this version")  # vocabulary: verdict: a field of the contract
    verdict_reason: str = Field(  # vocabulary: verdict: a field of the contract
        description="Why the answer does not state how many messages would be sent"
    )
    next_cursor: NextCursor
    as_of: AsOf
