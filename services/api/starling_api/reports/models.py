"""Edge: the response schemas of the audience report, and of materialised views, for `/openapi.json`."""

from typing import Literal

from pydantic import BaseModel, Field

from starling_api.http.openapi.models import INSTANT, PageModel


class MaterialisedRowModel(BaseModel):
    """The sums of one window. The row has one more field for each dimension and each measure of the view."""

    model_config = {"extra": "allow"}

    window_start: str = Field(description=INSTANT)
    window_end: str = Field(description=INSTANT)


class MaterialisedPageModel(PageModel[MaterialisedRowModel]):
    """One page of the rows of a materialised view."""

    view: str
    version: int


class ReportRowModel(BaseModel):
    """One row of the audience report. Its fields depend on `show`.

    `days`: day, size, entries, exits, entries_by_definition, exits_by_definition. `retention`: day, days_later, entered, still.
    `overlap`: other_key, users.
    """

    model_config = {"extra": "allow"}

    segment: str


class AudienceReportPageModel(PageModel[ReportRowModel]):
    """One page of the audience report."""

    report: Literal["audience"]
    show: Literal["days", "retention", "overlap"]
    timezone: str = Field(description="Time zone of the days")
    records_missing: int = Field(description="Records of the feed that were deleted before the report was computed")
    records_unreadable: int = Field(description="Records of the feed, of all workspaces, that could not be decoded")
