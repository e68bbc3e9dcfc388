"""Edge: the response schemas of backfills, for `/openapi.json`."""

from typing import Literal

from pydantic import BaseModel, Field

from starling_api.http.openapi.models import INSTANT


class BackfillModel(BaseModel):
    """Progress of the Spark job that gathers the history of a new version."""

    run: str
    state: Literal["planned", "running", "paused", "cancelled", "failed", "done"]
    percent: float = Field(description="Percentage of the records read; at 100 the partitions still have to apply the new version")
    records_done: int
    records_total: int
    records_refused: int = Field(description="Records that make the code of the job raise; the result is as without them")
    started_at: str = Field(description=INSTANT)
    estimated_end: str | None = Field(description="Estimate from the rate so far; null while the run is not running")
    message: str | None = Field(description="Error message of a failed run")


class BackfillRunModel(BackfillModel):
    """One backfill run."""

    segments: dict[str, int] = Field(description="Segments of this workspace in the run: key to version")
    asked: Literal["running", "paused", "cancelled"] = Field(description="State that was last requested")


class BackfillListModel(BaseModel):
    """Every known backfill run."""

    items: list[BackfillRunModel]
