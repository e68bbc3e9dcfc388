"""Edge: the response schemas of views and event types, of runs in SQL and of checks, for `/openapi.json`."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from starling_api.http.openapi.models import COMPONENT, INSTANT, DefinitionModel, PageModel

ResultCheck = Annotated[dict[str, Any], Field(json_schema_extra={COMPONENT: "ResultCheck"})]


Incremental = Annotated[dict[str, Any], Field(json_schema_extra={COMPONENT: "Incremental"})]


class CheckOutcomeModel(BaseModel):
    """The outcome of one check of the result of a statement in SQL."""

    check: str = Field(description="Rule and columns")
    severity: Literal["error", "warning"]
    passed: bool
    observed: str | None = Field(
        description="not_null: rows without a value; range: least and greatest value; unique: repeated values; volume: rows, and "
        "those of the run before; freshness: newest time. Null: no row has a value"
    )
    violations: int | None = Field(description="Rows that violate not_null, range or unique")
    message: str | None = Field(description="What is observed and allowed; null if it passed")


class CheckedRunModel(BaseModel):
    """The outcome of the checks. It stays until the next run that comes to them; null before the first one, or without checks."""

    checked_at: str | None = Field(description=INSTANT)
    checks: list[CheckOutcomeModel] | None = Field(description="In the order of the definition")


class TraitRunModel(CheckedRunModel):
    """The newest run of a computed trait in SQL. Fields of a run that has not got so far are null."""

    as_of: str | None = Field(description=f"{INSTANT}: the value of `:as_of`")
    ended_at: str | None = Field(description=INSTANT)
    users: int | None = Field(description="Users with a value")
    published: int | None = Field(description="Number of values that differed from the run before")
    scanned_bytes: int | None = Field(description="Estimate of the bytes of the tables that it reads")
    message: str | None = Field(description="Why it is refused, failed or waits")


class ViewRunModel(CheckedRunModel):
    """The newest run of a view, or of the checks of an event type. Fields of a run that has not got so far are null."""

    as_of: str | None = Field(description=f"{INSTANT}: the value of `:as_of`")
    ended_at: str | None = Field(description=INSTANT)
    rows: int | None = Field(description="Rows of the table, or events checked")
    days: int | None = Field(default=None, description="Days that an incremental view computed; null: all")
    late_rows: int | None = Field(default=None, description="Late events of an incremental view, which wait for the next day")
    scanned_bytes: int | None = Field(description="Estimate of the bytes of the tables that it reads")
    message: str | None = Field(description="Why it is refused, failed or waits")


class ViewModel(DefinitionModel):
    """A view: a statement in SQL whose result is a table of the lake."""

    name: str
    description: str
    timezone: str
    sql: str = Field(description="One SELECT with a name for each column")
    schedule: str = Field(description="Times at which the SQL runs, in five fields of cron")
    checks: list[ResultCheck] | None = Field(default=None, description="Checks of the result")
    incremental: Incremental | None = None
    last_run: ViewRunModel
    next_run_at: str | None = Field(description=f"{INSTANT}: the next time of the schedule")
    status: Literal["waiting", "running", "active", "refused", "failed", "archived"] = Field(
        description="active: the table has the rows of the last run; refused: Spark does not run the statement; failed: the last "
        "run or one of its checks failed"
    )


class ViewPageModel(PageModel[ViewModel]):
    """One page of views in SQL."""


class DeclaredPropertyModel(BaseModel):
    """A declared property of an event, and the column of its name."""

    name: str = Field(description="Name of the property in events, and of the column")
    type: Literal["string", "integer", "number", "boolean", "timestamp", "string[]"]
    description: str | None = None
    archived: bool | None = Field(default=None, description="true: it has no column, and its name and type stay taken")


class EventTypeModel(DefinitionModel):
    """An event with declared properties. In SQL it is the table `event_<key>` with a typed column for each of them."""

    event: str = Field(description="Name of the event")
    description: str
    properties: list[DeclaredPropertyModel]
    checks: list[ResultCheck] | None = None
    schedule: str | None = None
    timezone: str | None = None
    within: str | None = Field(default=None, description="Period of the events that checks see")
    last_run: ViewRunModel | None = Field(default=None, description="Newest run of the checks")
    next_run_at: str | None = None
    status: Literal["waiting", "running", "active", "refused", "failed", "archived"] = Field(
        description="active without checks; else the state of their last run. The table can be read in every state but archived"
    )


class EventTypePageModel(PageModel[EventTypeModel]):
    """One page of event types."""
