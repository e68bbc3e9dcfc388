"""Edge: the shapes of answers and bodies, for `/openapi.json`."""

from typing import Any, Final, Generic, Literal, TypeVar

from pydantic import BaseModel, Field

from starling_common.read_models import COMPUTED_TRAIT, SEGMENT, WEBHOOK
from starling_segments import json_schema
from starling_segments.schema import trait_schema

T = TypeVar("T")

INSTANT = "ISO 8601, UTC"


class PageView(BaseModel, Generic[T]):
    """One page of a list."""

    items: list[T]
    next_cursor: str | None = Field(description="null on the last page")
    as_of: str | None = Field(description="stream time that the answer reflects; null before the first event")


class MaterialisedRowView(BaseModel):
    """Sums of one window; beside these fields there is one for each dimension and each sum of the view."""

    model_config = {"extra": "allow"}

    window_start: str = Field(description=INSTANT)
    window_end: str = Field(description=INSTANT)


class MaterialisedView(PageView[MaterialisedRowView]):
    """Rows of a materialised view."""

    view: str
    version: int


class ReportRowView(BaseModel):
    """One row of the report; which fields there are depends on what was asked for.

    `days`: day, size, entries, exits, entries_by_definition, exits_by_definition. `retention`: day, days_later, entered, still.
    `overlap`: other_key, users.
    """

    model_config = {"extra": "allow"}

    segment: str


class AudienceReportView(PageView[ReportRowView]):
    """Rows of the audience report."""

    report: Literal["audience"]
    show: Literal["days", "retention", "overlap"]
    timezone: str = Field(description="whose days these are")
    records_missing: int = Field(description="records of the feed that were no longer kept when the report was made")
    records_unreadable: int = Field(description="records of the feed that could not be read, of all workspaces; 0 unless broken")


class FaultView(BaseModel):
    """One thing wrong with a definition."""

    pointer: str = Field(description="JSON pointer to the node")
    code: str
    message: str
    expected: str


class ProblemView(BaseModel):
    """Every error, as application/problem+json."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    message: str
    success: Literal[False]
    errors: list[FaultView] | None = None


class DefinitionView(BaseModel):
    """What the server adds to every definition."""

    key: str
    version: int
    status: str
    created_at: str = Field(description=INSTANT)
    updated_at: str = Field(description=INSTANT)
    used_by: list[str] | None = Field(default=None, description="of what is read by its key: the segments that are built on it")
    as_of: str | None = Field(default=None, description="of what is read by its key: stream time that the status reflects")


class BackfillView(BaseModel):
    """How far Spark is with the past of a new version."""

    run: str
    state: Literal["planned", "running", "paused", "cancelled", "failed", "done"]
    percent: float = Field(description="of the records; at 100 each partition has yet to switch")
    records_done: int
    records_total: int
    started_at: str = Field(description=INSTANT)
    estimated_end: str | None = Field(description="at the pace so far; null while it rests")
    message: str | None = Field(description="what went wrong")


class BackfillRunView(BackfillView):
    """One run."""

    segments: dict[str, int] = Field(description="of this workspace: key -> version")
    asked: Literal["running", "paused", "cancelled"]


class BackfillsView(BaseModel):
    """Every run that is known."""

    items: list[BackfillRunView]


class SegmentView(DefinitionView):
    """A segment."""

    name: str
    description: str
    timezone: str
    where: dict[str, Any]
    status: Literal["backfilling", "active", "paused", "archived"]
    backfill: BackfillView | None = Field(default=None, description="of what is read by its key, while Spark gathers its past")


class TraitView(DefinitionView):
    """A computed trait."""

    name: str
    timezone: str | None = None
    event: str | None = Field(default=None, description="a ratio has one on each side instead")
    where: dict[str, Any] | None = None
    measure: Any
    within: str | None = None
    between_ago: list[str] | None = None
    after: str | None = None
    before: str | None = None
    calendar: str | None = None
    status: Literal["active", "archived"]


class WebhookView(DefinitionView):
    """A webhook."""

    url: str
    secret: str | None = Field(default=None, description="only in the answer that creates it")
    segments: list[str] | None = Field(description="null: every segment")
    events: list[Literal["entered", "exited"]]
    status: Literal["active", "disabled", "archived"]


class ListView(DefinitionView):
    """An uploaded list, without who is on it."""

    name: str
    description: str
    status: Literal["active", "archived"]


class ListMemberView(BaseModel):
    """One user on a list."""

    user_id: str


class UploadView(BaseModel):
    """What became of an upload."""

    key: str
    users: int = Field(description="how many ids were taken, repeated ones counted each time")


class VersionView(BaseModel):
    """One change of a definition."""

    version: int
    action: str
    actor: str
    recorded_at: str = Field(description=INSTANT)
    document: dict[str, Any]


class MemberView(BaseModel):
    """One member of a segment."""

    user_id: str
    entered_at: str = Field(description=INSTANT)
    sequence: int


class SizeView(BaseModel):
    """How many members a segment has."""

    key: str
    size: int
    entered: int
    exited: int
    as_of: str | None


class DayView(BaseModel):
    """Entries and exits on one day (UTC), and the size at its end."""

    day: str
    entered: int
    exited: int
    size: int


class ProfileView(BaseModel):
    """What is known about one user."""

    user_id: str
    anonymous_ids: list[str]
    traits: dict[str, Any]
    group_id: str | None
    updated_at: str = Field(description=INSTANT)
    as_of: str | None


class UserSegmentView(BaseModel):
    """One segment that a user is in."""

    segment: str
    version: int
    entered_at: str = Field(description=INSTANT)
    sequence: int


class EventView(BaseModel):
    """One thing that a user did, or that became of a message to them."""

    event_id: str
    kind: Literal["track", "page", "screen", "delivery"]
    name: str
    time: str = Field(description=INSTANT)
    received_at: str = Field(description=INSTANT)
    message_id: str | None
    properties: dict[str, Any] = Field(description="of a delivery: channel, outcome, attempt and what else is known")
    context: dict[str, Any]
    correlation_id: str


class LookupView(BaseModel):
    """Segments by user."""

    memberships: dict[str, list[str]]
    as_of: str | None


class CauseView(BaseModel):
    """Why a membership changed."""

    kind: Literal["EVENT", "TIMER", "DEFINITION", "MERGE", "LIST", "ERASURE", "MANUAL"]
    message_id: str | None
    event_name: str | None


class ChangeView(BaseModel):
    """One user entered or left one segment; the record of the topic `segments.membership` as JSON."""

    event_id: str
    workspace: str
    user_id: str
    anonymous_ids: list[str]
    segment_key: str
    segment_name: str
    segment_version: int
    status: Literal["ENTERED", "EXITED"]
    sequence: int = Field(description="grows by one for each change of this user and segment")
    effective_at: str = Field(description=INSTANT)
    decided_at: str = Field(description=INSTANT)
    received_at: str = Field(description=INSTANT)
    cause: CauseView
    correlation_id: str
    traits: dict[str, Any]
    memberships: list[str]


class FeedView(PageView[ChangeView]):
    """A page of the membership feed."""

    next_cursor: str | None = Field(description="null when everything there is now has been read")
    cursor: str = Field(description="the place after this page: ask for what comes later with `after`")


VIEWS: Final[dict[str, type[DefinitionView]]] = {SEGMENT: SegmentView, COMPUTED_TRAIT: TraitView, WEBHOOK: WebhookView}

_KEY_SCHEMA: Final[dict[str, Any]] = {"type": "string", "pattern": "^[a-z][a-z0-9_-]{0,63}$"}
_WEBHOOK_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["key", "url"],
    "properties": {
        "key": _KEY_SCHEMA,
        "url": {"type": "string", "format": "uri"},
        "secret": {"type": "string", "description": "whsec_…; made when missing"},
        "segments": {"type": ["array", "null"], "items": {"type": "string"}, "description": "missing: every segment"},
        "events": {"type": "array", "items": {"enum": ["entered", "exited"]}},
    },
}


def body_schema(kind: str) -> dict[str, Any]:
    """The JSON Schema of a definition as it is sent to us."""
    if kind == WEBHOOK:
        return _WEBHOOK_SCHEMA
    return {SEGMENT: json_schema, COMPUTED_TRAIT: trait_schema}[kind]()
