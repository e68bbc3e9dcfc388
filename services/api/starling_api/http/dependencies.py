"""Edge: the FastAPI dependencies of the routes: caller, body, page and services."""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final

import msgspec
from fastapi import Depends, Header, Query, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from starling_api.audit.audit import Act, Audit
from starling_api.backfills.backfills import Backfills
from starling_api.credentials.commands import CredentialCommands
from starling_api.definitions.commands.commands import Commands
from starling_api.definitions.definition import Author
from starling_api.feed.changes import Feed
from starling_api.feed.streams import Streams
from starling_api.http.access.auth import Caller, Role, Tokens
from starling_api.http.access.gate import Gate
from starling_api.http.access.rate_limits import RateLimits, Rates
from starling_api.http.errors import BadRequest, BodyTimeout, Forbidden, TokensUnknown, TooLarge, Unauthenticated
from starling_api.http.pagination import DEFAULT_LIMIT, MAX_LIMIT, PageOf
from starling_api.imports.imports import Imports
from starling_api.lists.lists import Lists
from starling_api.messages.people import People
from starling_api.messages.suppressions import Suppressed
from starling_api.outcomes.outcomes import Outcomes
from starling_api.ports import Answers, MessageRecords, TopicCheck, no_topic
from starling_api.preview.previews import Previews
from starling_api.reports.audience_report import Reports
from starling_api.reports.campaign_report import CampaignCounts
from starling_api.reports.views import MaterialisedViews
from starling_api.sql.runs import SqlRuns
from starling_api.users.exports import Exports
from starling_api.users.queries import Queries
from starling_api.webhooks.sender import WebhookSender
from starling_segments import DefinitionRefused, read_document

MAX_BODY_BYTES: Final = 1_048_576
_ETAG: Final = re.compile(r'(?:W/)?"?([0-9]{1,18})"?')
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")

_bearer = HTTPBearer(
    auto_error=False, scheme_name="Token", description="A token of the installation. Its role is viewer, editor, approver or admin."
)


@dataclass(frozen=True, slots=True)
class Services:
    """The services of the application."""

    commands: Commands
    queries: Queries
    answers: Answers
    tokens: Tokens
    lists: Lists
    feed: Feed
    outcomes: Outcomes
    streams: Streams
    materialised_views: MaterialisedViews
    reports: Reports
    previews: Previews
    exports: Exports
    backfills: Backfills
    imports: Imports
    token_commands: CredentialCommands
    write_key_commands: CredentialCommands
    audit: Audit
    people: People
    message_topics: MessageRecords
    campaign_counts: CampaignCounts
    suppressed: Suppressed
    sql_traits: SqlRuns
    sql_views: SqlRuns
    body_timeout_seconds: float = 30.0
    gate: Gate = field(default_factory=lambda: Gate(4, 8, 10))
    rate_limits: RateLimits = field(default_factory=lambda: RateLimits(Rates()))
    webhook_sender: WebhookSender = field(default_factory=WebhookSender)
    check_topic: TopicCheck = no_topic


@dataclass(frozen=True, slots=True)
class Write:
    """A requested write. `fingerprint`: hash of the whole request. `dry_run`: the request is validated without an effect."""

    author: Author
    document: Any
    if_match: int | None
    idempotency_key: str | None
    fingerprint: str
    dry_run: bool
    act: Act


def services_of(request: Request) -> Services:
    """Return the services of the application."""
    found: Services = request.app.state.services
    return found


UsedServices = Annotated[Services, Depends(services_of)]


def at_least(role: Role) -> Callable[..., Caller]:
    """Return a dependency that provides a caller with at least this role."""

    def caller(services: UsedServices, sent: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]) -> Caller:
        found = services.tokens.caller(sent.credentials) if sent is not None else None
        if found is None and sent is not None and not services.tokens.is_complete():
            raise TokensUnknown("this process has not read the tokens yet: send the request again in a few seconds")
        if found is None:
            raise Unauthenticated("send `Authorization: Bearer <token>` with a token of this installation")
        if not found.role.includes(role):
            raise Forbidden(f"the call needs the role {role.value}; the token's role is {found.role.value}")
        return found

    return caller


Viewer = Annotated[Caller, Depends(at_least(Role.VIEWER))]


async def body_parts(request: Request, seconds: float) -> AsyncIterator[bytes]:
    """Yield the parts of the body. Raises: BodyTimeout if the last one has not arrived after `seconds`."""
    deadline = asyncio.get_running_loop().time() + seconds
    parts = aiter(request.stream())
    while True:
        try:
            async with asyncio.timeout_at(deadline):
                part = await anext(parts)
        except StopAsyncIteration:
            return
        except TimeoutError as cause:
            raise BodyTimeout(f"the body took over {seconds:.0f} seconds: send it faster, or in parts") from cause
        yield part


async def body_of(request: Request) -> bytes:
    """Return the body. Raises: TooLarge, BodyTimeout."""
    parts: list[bytes] = []
    size_bytes = 0
    async for part in body_parts(request, services_of(request).body_timeout_seconds):
        size_bytes += len(part)
        if size_bytes > MAX_BODY_BYTES:
            raise TooLarge(f"a body has at most {MAX_BODY_BYTES} bytes")
        parts.append(part)
    return b"".join(parts)


Body = Annotated[bytes, Depends(body_of)]


def parse_json(body: bytes) -> Any:
    """Return the decoded JSON. The content type is ignored. Raises: BadRequest (`not_json`)."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as cause:
        raise BadRequest("not_json", f"the body is not JSON: {cause}") from cause


def parse_definition(body: bytes) -> Any:
    """Return the JSON value of a definition, or of a condition to preview.

    Raises: DefinitionRefused with every number and text that is out of bounds, BadRequest (`not_json`).
    """
    try:
        return read_document(body)
    except DefinitionRefused:
        raise
    except ValueError as cause:
        raise BadRequest("not_json", f"the body is not JSON: {cause}") from cause


IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="Makes a write safe to repeat: for a day, the same key returns the response of the first successful request",
    ),
]
DryRun = Annotated[bool, Query(description="Validate the request and return its response, without a change and without an ETag")]
IfMatch = Annotated[
    str | None,
    Header(alias="If-Match", description="ETag of the resource; the write is refused with 412 when it is not the current one"),
]


def unversioned_write_by(role: Role) -> Callable[..., Write]:
    """Return a dependency that provides a write without a body and without `If-Match`."""

    def order(
        request: Request,
        caller: Annotated[Caller, Depends(at_least(role))],
        idempotency_key: IdempotencyKey = None,
        *,
        dry_run: DryRun = False,
    ) -> Write:
        return _bare(request, caller, None, idempotency_key, dry_run=dry_run)

    return order


def write_by(role: Role) -> Callable[..., Write]:
    """Return a dependency that provides a write without a body."""

    def write(
        request: Request,
        caller: Annotated[Caller, Depends(at_least(role))],
        if_match: IfMatch = None,
        idempotency_key: IdempotencyKey = None,
        *,
        dry_run: DryRun = False,
    ) -> Write:
        return _bare(request, caller, if_match, idempotency_key, dry_run=dry_run)

    return write


def unversioned_write_with_body(role: Role, parse: Callable[[bytes], Any] = parse_definition) -> Callable[..., Write]:
    """Return a dependency that provides a write with a body and without `If-Match`."""

    def order(bare: Annotated[Write, Depends(unversioned_write_by(role))], body: Body) -> Write:
        return _with_document(bare, body, parse)

    return order


def _bare(request: Request, caller: Caller, if_match: str | None, idempotency_key: str | None, *, dry_run: bool) -> Write:
    print_ = hashlib.sha256(f"{request.method} {request.url.path} {if_match}\n".encode()).hexdigest()
    author = author_of(request, caller)
    act = Act(caller, request.method, request.url.path, author.correlation_id)
    return Write(author, None, revision_in(if_match), idempotency_key, print_, dry_run, act)


def write_with_body(role: Role) -> Callable[..., Write]:
    """Return a dependency that provides a write with a body."""

    def write(bare: Annotated[Write, Depends(write_by(role))], body: Body) -> Write:
        return _with_document(bare, body, parse_definition)

    return write


def _with_document(bare: Write, body: bytes, parse: Callable[[bytes], Any]) -> Write:
    print_ = hashlib.sha256(bare.fingerprint.encode() + body).hexdigest()
    return replace(bare, document=parse(body), fingerprint=print_)


def author_of(request: Request, caller: Caller) -> Author:
    """Return the caller with the correlation id and trace context of the request."""
    trace = request.headers.get("traceparent", "")
    return Author(caller.workspace, caller.name, request.state.correlation_id, trace if _TRACEPARENT.fullmatch(trace) else None)


def revision_in(if_match: str | None) -> int | None:
    """Return the revision in an If-Match header; None without a header or for `*`. Raises: BadRequest."""
    if if_match is None or if_match.strip() == "*":
        return None
    found = _ETAG.fullmatch(if_match.strip())
    if found is None:
        raise BadRequest("bad_if_match", 'If-Match must be one ETag of an answer, such as "1772357400000000", or *')
    return int(found[1])


def page_of(
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Maximum number of items")] = DEFAULT_LIMIT,
    cursor: Annotated[str | None, Query(max_length=40_000, description="`next_cursor` of the previous page")] = None,
) -> PageOf:
    """Return the requested page of a list."""
    return PageOf(limit, cursor)


Page = Annotated[PageOf, Depends(page_of)]
