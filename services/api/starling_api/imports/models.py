"""Edge: the response schemas of imports, for `/openapi.json`."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from starling_api.http.openapi.models import INSTANT, PageModel


class ImportSummaryModel(BaseModel):
    """One import: its request and its state."""

    key: str
    uri: str
    format: Literal["csv", "parquet", "jsonl", "jdbc", "iceberg"]
    kind: Literal["events", "traits", "accounts", "lists", "catalog"]
    user_column: str | None = None
    product_column: str | None = None
    account_column: str | None = None
    list_key: str | None = None
    event: str | None = None
    event_column: str | None = None
    time_column: str | None = None
    id_column: str | None = None
    columns: dict[str, str] | None = None
    delimiter: str | None = None
    max_rejects: int | None = None
    jdbc: dict[str, Any] | None = Field(None, description="The password is ***")
    iceberg: dict[str, Any] | None = None
    schedule: str | None = Field(None, description="Five fields of cron")
    timezone: str | None = Field(None, description="Of the schedule")
    next_run_at: str | None = Field(None, description="Next time of the schedule")
    state: Literal["waiting", "running", "done", "failed", "cancelled"]
    message: str | None = Field(description="Why the import failed, or waits, and the cure")
    created_at: str = Field(description=INSTANT)
    changed_at: str | None = Field(description=INSTANT)


class ImportFileModel(BaseModel):
    """Progress of one file of an import."""

    file: str = Field(description="Path below the URI; of a table rows, or a part such as rows-3, and deleted")
    rows_done: int = Field(description="Rows read; of a table unchanged ones too")
    accepted: int
    rejected: int
    complete: bool
    message: str | None = Field(description="Why the file was not read to its end, and the cure")


class ImportModel(ImportSummaryModel):
    """One import with its progress."""

    rows_done: int = Field(description="Rows read; of a table unchanged ones too")
    accepted: int = Field(description="Rows accepted; a repetition has no further effect")
    rejected: int
    files: list[ImportFileModel]


class ImportPageModel(PageModel[ImportSummaryModel]):
    """One page of imports."""


class ImportRejectModel(BaseModel):
    """A row that was not imported."""

    file: str
    row: int = Field(description="1 for the first row of data of the file")
    column: str | None = Field(description="Column, or the place in the item; null for the whole row")
    code: str
    reason: str
    cure: str


class ImportRejectPageModel(PageModel[ImportRejectModel]):
    """One page of rejected rows."""
