"""Edge: the response schemas of computed traits, for `/openapi.json`."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from starling_api.http.openapi.models import COMPONENT, INSTANT, DefinitionModel, PageModel
from starling_api.sql.models import ResultCheck, TraitRunModel


class TraitProgressModel(BaseModel):
    """Progress of the Spark job that computes a trait over all history."""

    percent: float = Field(
        description="Percentage of the records; for some seconds after a new definition that of the traits in force"
    )
    records_done: int
    records_total: int


class TraitModel(DefinitionModel):
    """A computed trait: a measure of events, or a statement in SQL."""

    name: str
    timezone: str | None = None
    event: str | None = Field(default=None, description="Event name; a ratio names one on each side instead")
    where: dict[str, Any] | None = Field(default=None, json_schema_extra={COMPONENT: "EventFilter"})
    measure: Any = Field(default=None, description='Name of a measure, or an object such as `{"sum": "revenue"}`; none in SQL')
    sql: str | None = Field(default=None, description="One SELECT with the columns user_id and value")
    schedule: str | None = Field(default=None, description="Times at which the SQL runs, in five fields of cron")
    checks: list[ResultCheck] | None = Field(default=None, description="Checks of the result of the SQL")
    last_run: TraitRunModel | None = Field(default=None, description="Newest run of the SQL")
    next_run_at: str | None = Field(default=None, description=f"{INSTANT}: the next time of the schedule")
    within: str | None = None
    between_ago: list[str] | None = None
    after: str | None = None
    before: str | None = None
    calendar: str | None = None
    status: Literal["bootstrapping", "waiting", "running", "active", "refused", "failed", "archived"] = Field(
        description="bootstrapping: not yet published over all history, or the job does not run. In SQL: waiting, running, then "
        "active; refused: Spark does not run the statement; failed: the last run or one of its checks failed"
    )
    progress: TraitProgressModel | None = Field(
        default=None, description="Progress of the job while it is bootstrapping; only in the answer for one key"
    )
    as_of: str | None = Field(
        default=None,
        description="Stream time up to which values are published, null if it is unknown; in SQL that of the data behind the "
        "status. Only in the answer for one key",
    )


class TraitPageModel(PageModel[TraitModel]):
    """One page of computed traits."""
