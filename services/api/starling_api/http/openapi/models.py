"""Edge: the schemas of responses, for `/openapi.json`. `document.py` removes the suffix `Model` from each name."""

from typing import Annotated, Any, Final, Generic, Literal, TypeVar

from pydantic import BaseModel, Field, RootModel

from starling_common.cassandra.read_models import CAMPAIGN, COMPUTED_TRAIT, EVENT_TYPE, LIST, POLICY, SEGMENT, TARGET, VIEW, WEBHOOK

T = TypeVar("T")

INSTANT: Final = "Instant in ISO 8601, UTC"
COMPONENT: Final = "x-component"
"""Marks a schema for which `document.py` writes a reference to the component of that name."""

Where = Annotated[dict[str, Any], Field(json_schema_extra={COMPONENT: "Condition"})]
ResultCheck = Annotated[dict[str, Any], Field(json_schema_extra={COMPONENT: "ResultCheck"})]


class AsOf(RootModel[str | None]):
    """Stream time that this answer reflects; null before the first event."""


class NextCursor(RootModel[str | None]):
    """Cursor of the next page; null on the last page."""


class PageModel(BaseModel, Generic[T]):
    """One page of a list."""

    items: list[T]
    next_cursor: NextCursor
    as_of: AsOf


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


class FieldErrorModel(BaseModel):
    """One error in a body or a parameter."""

    pointer: str = Field(description="JSON pointer into the body, or a place such as `query/limit` or `row/7` of a CSV file")
    code: str = Field(description="Stable code of the error")
    message: str = Field(description="Description of the error")
    expected: str = Field(description="Description of a valid value")


class ProblemModel(BaseModel):
    """An error (RFC 9457). `code` is stable, `message` names the cause and the cure."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    message: str
    success: Literal[False]
    errors: list[FieldErrorModel] | None = Field(default=None, description="Every error of the body or the parameters")
    used_by: list[str] | None = Field(default=None, description="Of `in_use`: keys of the definitions that use the resource")
    revision: int | None = Field(default=None, description="Of `version_conflict`: the current revision")


class DefinitionModel(BaseModel):
    """The fields that the server adds to every definition."""

    key: str
    version: int = Field(description="Grows with each change of the meaning")
    revision: int = Field(description="Grows with every change. Quoted: the ETag")
    status: str
    tags: list[str] | None = Field(default=None, description="Labels without an effect")
    owner: str | None = Field(default=None, description="Person or team, without an effect")
    created_at: str = Field(description=INSTANT)
    updated_at: str = Field(description=INSTANT)
    used_by: list[str] | None = Field(
        default=None,
        description="Definitions that use it; only for one key",
    )
    as_of: str | None = Field(
        default=None,
        description="Stream time of the status; only for one key",
    )


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


class SegmentModel(DefinitionModel):
    """A segment."""

    name: str
    description: str
    timezone: str
    where: Where
    status: Literal["backfilling", "active", "paused", "archived"]
    size: int | None = Field(default=None, description="Number of members; only in a list of segments")
    backfill: BackfillModel | None = Field(
        default=None, description="Progress of the backfill, while there is one; only in the answer for one key"
    )


class SegmentBatchResultModel(BaseModel):
    """The segments of a batch, in the order of the request."""

    items: list[SegmentModel]


class SegmentPageModel(PageModel[SegmentModel]):
    """One page of segments."""


class TraitProgressModel(BaseModel):
    """Progress of the Spark job that computes a trait over all history."""

    percent: float = Field(
        description="Percentage of the records; for some seconds after a new definition still that of the job before"
    )
    records_done: int
    records_total: int


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


class ViewRunModel(CheckedRunModel):
    """The newest run of a view, or of the checks of an event type. Fields of a run that has not got so far are null."""

    as_of: str | None = Field(description=f"{INSTANT}: the value of `:as_of`")
    ended_at: str | None = Field(description=INSTANT)
    rows: int | None = Field(description="Rows of the table, or events checked")
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


class WebhookBatchModel(BaseModel):
    """How a webhook sends several changes in one request."""

    max_items: int = Field(description="Maximum of changes in one request")
    max_wait_ms: int = Field(description="Maximum time in milliseconds that a change waits for others")


class WebhookModel(DefinitionModel):
    """A webhook."""

    url: str
    secret: str | None = Field(
        default=None, description="Signing secret; only in the answers that create the webhook and that rotate its secret"
    )
    segments: list[str] | None = Field(description="Keys of the segments to send; null sends every segment")
    events: list[Literal["entered", "exited"]]
    format: Literal["standard", "segment-track", "segment-identify"]
    batch: WebhookBatchModel | None = Field(description="Null: each change is a request of its own")
    rate: int | None = Field(description="Most requests a second; null: no limit")
    headers: dict[str, str] = Field(description="Headers of each request; every value is shown as `***`")
    previous_secret_expires_at: str | None = Field(
        description="Instant until which messages are also signed with the previous secret; null if the secret was never rotated"
    )
    disabled: bool | None = Field(default=None, description="True after the receiver has answered 410")
    disabled_because: str | None = Field(default=None, description="Reason why the webhook is disabled")
    status: Literal["active", "disabled", "archived"]


class WebhookPageModel(PageModel[WebhookModel]):
    """One page of webhooks."""


class SecretHolderModel(BaseModel):
    """A definition or an import with secrets."""

    kind: Literal["webhook", "target", "import"]
    key: str


class UnreadableSecretModel(SecretHolderModel):
    """A definition or an import with a secret that cannot be decrypted."""

    reason: str = Field(description="Description of the secret, the id of the missing key and the cure")


class RotatedSecretsModel(BaseModel):
    """What a rotation of the key has done."""

    key_id: str = Field(description="Id of the newest key, with which every readable secret is encrypted now")
    rewritten: list[SecretHolderModel] = Field(description="Those whose secrets were plain, or encrypted with an older key")
    unreadable: list[UnreadableSecretModel] = Field(description="Those that stay as they are")
    complete: bool = Field(description="False: call it again for the others")


class WebhookTestModel(BaseModel):
    """The result of a test call."""

    message_id: str = Field(description="The `webhook-id` of the request")
    delivered: bool = Field(description="Whether the endpoint has answered 2xx")
    status: int | None = Field(description="Status code of the answer; null without one")
    took_ms: int = Field(description="Time of the attempt in milliseconds")
    answer: str | None = Field(description="The first 1,000 bytes of the answer's body; null without an answer")
    reason: (
        Literal["status", "address_refused", "name_not_resolved", "not_connected", "tls_failed", "timeout", "no_http_answer"] | None
    ) = Field(description="Why the example change was not delivered")
    message: str | None = Field(description="The reason in words, and what follows from it")


class ListModel(DefinitionModel):
    """An uploaded list, without its members."""

    name: str
    description: str
    status: Literal["active", "archived"]


class ListPageModel(PageModel[ListModel]):
    """One page of uploaded lists."""


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


class TargetModel(DefinitionModel):
    """A target, with the fields of its channel. Every secret is shown as `***`."""

    model_config = {"extra": "allow"}

    name: str
    channel: str
    disabled: bool | None = Field(default=None, description="True for a target to which nothing is sent")
    disabled_because: str | None = Field(default=None, description="Reason why the target is disabled")
    status: Literal["active", "disabled", "archived"]


class TargetTestModel(BaseModel):
    """The result of a test call."""

    message_id: str = Field(description="The id of the test, which an example digest contains")
    delivered: bool = Field(description="Whether the endpoint has answered 2xx, or the topic exists")
    status: int | None = Field(description="Status code of the answer; null without one, and of Kafka")
    took_ms: int = Field(description="Time of the attempt in milliseconds")
    answer: str | None = Field(description="The first 1,000 bytes of the answer's body, or the topic; null without an answer")
    reason: (
        Literal[
            "status",
            "address_refused",
            "name_not_resolved",
            "not_connected",
            "tls_failed",
            "timeout",
            "no_http_answer",
            "topic_missing",
            "not_allowed",
        ]
        | None
    ) = Field(description="Why the example was not delivered, or the topic cannot be written")
    message: str | None = Field(description="The reason in words, and what follows from it")


class TargetPageModel(PageModel[TargetModel]):
    """One page of targets."""


class PolicyModel(DefinitionModel):
    """The policy of the workspace, with the fields of its document."""

    model_config = {"extra": "allow"}

    status: Literal["active", "archived"]


class ListMemberModel(BaseModel):
    """One user on a list."""

    user_id: str


class ListMemberPageModel(PageModel[ListMemberModel]):
    """One page of the members of a list."""


class UploadModel(BaseModel):
    """The result of an upload."""

    key: str
    users: int = Field(description="Number of ids in the upload; an id that occurs twice counts twice")


class VersionModel(BaseModel):
    """One change of a definition."""

    version: int
    revision: int
    action: str
    actor: str
    recorded_at: str = Field(description=INSTANT)
    document: dict[str, Any]


class VersionPageModel(PageModel[VersionModel]):
    """One page of the changes of a definition."""


class MemberModel(BaseModel):
    """One member of a segment."""

    user_id: str
    entered_at: str = Field(description=INSTANT)
    sequence: int = Field(description="Number of the membership change of this user and segment")


class MemberPageModel(PageModel[MemberModel]):
    """One page of the members of a segment."""


class SizeModel(BaseModel):
    """The number of members of a segment."""

    key: str
    size: int
    entered: int = Field(description="Entries since the segment was created")
    exited: int = Field(description="Exits since the segment was created")
    as_of: AsOf


class DayModel(BaseModel):
    """The entries and exits of one day (UTC), and the size at its end."""

    day: str
    entered: int
    exited: int
    size: int


class DayPageModel(PageModel[DayModel]):
    """One page of days."""


class ProfileModel(BaseModel):
    """The profile of one user."""

    user_id: str
    anonymous_ids: list[str]
    traits: dict[str, Any]
    group_id: str | None
    updated_at: str = Field(description=INSTANT)
    as_of: AsOf


class UserSegmentModel(BaseModel):
    """One segment of which a user is a member."""

    segment: str
    version: int
    entered_at: str = Field(description=INSTANT)
    sequence: int = Field(description="Number of the membership change of this user and segment")


class UserSegmentPageModel(PageModel[UserSegmentModel]):
    """One page of the segments of a user."""


class EventModel(BaseModel):
    """One event of a user, or one delivery outcome."""

    event_id: str
    kind: Literal["track", "page", "screen", "delivery"]
    name: str
    time: str = Field(description=INSTANT)
    received_at: str = Field(description=INSTANT)
    message_id: str | None
    properties: dict[str, Any] = Field(description="Of a delivery: channel, outcome, attempt and further details")
    context: dict[str, Any]
    correlation_id: str


class EventPageModel(PageModel[EventModel]):
    """One page of the events of a user."""


class LookupModel(BaseModel):
    """The segments of each user."""

    memberships: dict[str, list[str]]
    as_of: AsOf


class CauseModel(BaseModel):
    """The cause of a membership change."""

    kind: Literal["EVENT", "TIMER", "DEFINITION", "MERGE", "LIST", "ERASURE", "MANUAL"]
    message_id: str | None
    event_name: str | None


class MembershipChangeModel(BaseModel):
    """A user entered or left a segment: the record of the topic `segments.membership` as JSON."""

    event_id: str
    workspace: str
    user_id: str
    anonymous_ids: list[str]
    segment_key: str
    segment_name: str
    segment_version: int
    status: Literal["ENTERED", "EXITED"]
    sequence: int = Field(description="Number of the change of this user and segment, without gaps")
    effective_at: str = Field(description=INSTANT)
    decided_at: str = Field(description=INSTANT)
    received_at: str = Field(description=INSTANT)
    cause: CauseModel
    correlation_id: str
    traits: dict[str, Any]
    memberships: list[str] = Field(description="Keys of all segments of the user after this change")


class FeedPageModel(PageModel[MembershipChangeModel]):
    """One page of the membership feed. A page with few items, or with none, can have a next page."""

    cursor: str = Field(description="Position after this page, also at the end of the feed: `after` of a later request")


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


class CredentialModel(BaseModel):
    """A token or a write key, without its secret."""

    id: str
    name: str
    prefix: str = Field(description="First characters of the newest secret")
    last4: str = Field(description="Last four characters of the newest secret")
    created_at: str = Field(description=INSTANT)
    created_by: str = Field(description="The token that created it: its id, or the name of a token of the settings")
    expires_at: str | None = Field(description="Instant from which the newest secret is refused; null: never")
    previous_secret_expires_at: str | None = Field(description="Instant until which an earlier secret works too; null if none does")
    revoked: bool
    revoked_at: str | None


class TokenModel(CredentialModel):
    """An API token, without its secret."""

    role: Literal["viewer", "editor", "approver", "admin"]


class IssuedTokenModel(TokenModel):
    """An API token with its new secret."""

    secret: str | None = Field(
        description="The token to send, in this response only; null in a dry run and in a repetition with the same Idempotency-Key"
    )


class TokenPageModel(PageModel[TokenModel]):
    """One page of tokens."""


Scope = Literal["track", "identify", "page", "screen", "group", "alias", "batch", "import"]


class WriteKeyModel(CredentialModel):
    """A write key, without its secret."""

    scopes: list[Scope] = Field(description="The endpoints of ingest that it may use")


class IssuedWriteKeyModel(WriteKeyModel):
    """A write key with its new secret."""

    secret: str | None = Field(
        description="The key to send, in this response only; null in a dry run and in a repetition with the same Idempotency-Key"
    )


class WriteKeyPageModel(PageModel[WriteKeyModel]):
    """One page of write keys."""


class AuditModel(BaseModel):
    """One successful write of the API."""

    recorded_at: str = Field(description=INSTANT)
    workspace: str
    actor: str = Field(description="The token: its id, or the name of a token of the settings")
    actor_name: str = Field(description="The name that an admin gave the token; empty for a token of the settings")
    role: Literal["viewer", "editor", "approver", "admin"]
    method: Literal["POST", "PUT", "DELETE"]
    path: str
    resource: str = Field(description="The collection, such as `segments` or `tokens`")
    key: str = Field(description="Key or id of the changed resource")
    revision_before: int | None = Field(description="Revision of a definition before the write; null for a new one")
    revision_after: int | None = Field(description="Revision of a definition after the write")
    correlation_id: str = Field(description="Id of the request")


class AuditPageModel(PageModel[AuditModel]):
    """One page of the audit log. A page with few items, or with none, can have a next page."""


MODELS: Final[dict[str, type[DefinitionModel]]] = {
    SEGMENT: SegmentModel, COMPUTED_TRAIT: TraitModel, WEBHOOK: WebhookModel, LIST: ListModel,
    CAMPAIGN: CampaignModel, TARGET: TargetModel, POLICY: PolicyModel, EVENT_TYPE: EventTypeModel,
    VIEW: ViewModel,
}  # fmt: skip
PAGES: Final[dict[str, type[BaseModel]]] = {
    SEGMENT: SegmentPageModel, COMPUTED_TRAIT: TraitPageModel, WEBHOOK: WebhookPageModel, LIST: ListPageModel,
    CAMPAIGN: CampaignPageModel, TARGET: TargetPageModel, EVENT_TYPE: EventTypePageModel, VIEW: ViewPageModel,
}  # fmt: skip
