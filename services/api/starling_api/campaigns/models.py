"""Edge: the response schemas of campaigns, their previews, reports and dry runs, for `/openapi.json`."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from starling_api.http.openapi.models import AsOf, DefinitionModel, NextCursor, PageModel


class BroadcastModel(BaseModel):
    """How far a broadcast is written."""

    state: Literal["waiting", "writing", "done"] = Field(
        description="`waiting` for its instant, `writing` its members at the rate of the campaign, or `done`, as an archived one"
    )
    written: int = Field(description="Number of members that were written for the messenger, which decides about each of them")


class CampaignModel(DefinitionModel):
    """A campaign, with the fields of its document."""

    model_config = {"extra": "allow"}

    name: str
    trigger: dict[str, Any]
    channel: str
    target: str
    variants: list[dict[str, Any]]
    status: Literal["draft", "active", "paused", "archived"]
    broadcast: BroadcastModel | None = Field(
        default=None, description="Of a broadcast alone, in answers to `GET`; null while the broker does not answer"
    )


class CampaignPageModel(PageModel[CampaignModel]):
    """One page of campaigns."""


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
    verdict: Literal["send", "defer", "drop"] | None = Field(  # vocabulary: verdict: a field of the contract
        description="The decision about the message if it is due now; null without a messenger"
    )
    reason: str | None
    until: str | None = Field(description="The end of a deferral")
    as_of: AsOf


class DecisionCountModel(BaseModel):
    """The number of counted members with one decision."""

    verdict: Literal["send", "defer", "drop"] | None = Field(  # vocabulary: verdict: a field of the contract
        description="Null without a messenger"
    )
    reason: str | None
    variant: str | None
    count: int


class TestMessageModel(BaseModel):
    """One test message."""

    to: str
    delivery_id: str


class TestMessagesModel(BaseModel):
    """The requested test messages."""

    campaign: str
    variant: str
    messages: list[TestMessageModel]


class FunnelRowModel(BaseModel):
    """The messages of one day, version and variant. Each message counts once for each step that it has reached."""

    version: int
    variant: str | None = Field(description="Null for messages that were dropped before a variant was determined")
    day: str = Field(description="Day of the decision in the zone of the workspace")
    requested: int
    sent: int
    delivered: int
    opened: int
    clicked: int
    bounced: int
    complained: int
    unsubscribed: int
    failed: int
    held_out: int
    converted: int = Field(description="Requested messages whose goal was reached in time")
    held_out_converted: int = Field(description="Held-out messages whose goal was reached in time")
    value: float = Field(description="Sum of the values of `converted`")
    suppressed: dict[str, int] = Field(description="Messages that were dropped or suppressed, by reason")


class ArmModel(BaseModel):
    """People by the first message of the campaign that was requested or held out."""

    people: int
    converted: int


class LiftModel(BaseModel):
    """How much more often people convert who are written to than people who are held out."""

    variant: str | None = Field(description="Null: all variants together")
    difference: float | None = Field(description="Difference of the conversion rates; null if an arm is empty")
    low: float | None = Field(description="Lower bound of the 95 % interval of the difference (Newcombe)")
    high: float | None
    relative: float | None = Field(description="The difference divided by the rate of the held out; null if that is 0")
    value: float | None = Field(description="Difference of the mean values of conversions for each person")
    inconclusive: bool = Field(description="An arm has fewer than 100 people or 5 conversions")
    written_to: ArmModel
    held_out: ArmModel


class CampaignReportModel(BaseModel):
    """The report of a campaign."""

    campaign: str
    funnel: list[FunnelRowModel]
    lift: list[LiftModel] = Field(description="All variants together, then each variant, over all days")


class DryRunModel(BaseModel):
    """The number of members with each decision, of the members counted in this answer."""

    segment: str
    size: int = Field(description="Number of all members")
    counted: int = Field(description="Number of members in this answer: add up the answers of all cursors")
    counts: list[DecisionCountModel]
    next_cursor: NextCursor
    as_of: AsOf
