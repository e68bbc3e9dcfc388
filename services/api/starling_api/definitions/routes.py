"""Edge: the routes of definitions. Every kind has the same five: create, list, read, change and archive."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Final, Literal

import msgspec
from fastapi import APIRouter, Depends, Query, Response
from fastapi.responses import JSONResponse

from starling_api.audit.audit import changed_by
from starling_api.definitions.commands.commands import Commands
from starling_api.definitions.definition import Author, Definition
from starling_api.definitions.kinds.kind import Kind
from starling_api.definitions.kinds.kinds import CAMPAIGNS, EVENT_TYPES, LISTS, POLICIES, SEGMENTS, TARGETS, TRAITS, VIEWS, WEBHOOKS
from starling_api.definitions.models import MODELS, PAGES, SegmentBatchResultModel
from starling_api.definitions.repository import to_json
from starling_api.http.access.auth import Role
from starling_api.http.dependencies import (
    Page,
    Services,
    UsedServices,
    Viewer,
    Write,
    parse_json,
    revision_in,
    unversioned_write_with_body,
    write_by,
    write_with_body,
)
from starling_api.http.idempotency import answer_once
from starling_api.http.openapi.bodies import DEFINITIONS, MAX_BATCH, UPDATES, body_of
from starling_api.http.problems import problems
from starling_api.ports import Stored
from starling_api.users.queries import Filter
from starling_campaigns.definitions.policy import POLICY_KEY
from starling_segments import DefinitionRefused, FieldError

Endpoint = Callable[..., Response]
_MAX_TEXT: Final = 200


def _filter_of(
    status: Annotated[
        Literal[
            "backfilling",
            "bootstrapping",
            "waiting",
            "running",
            "refused",
            "failed",
            "draft",
            "active",
            "paused",
            "disabled",
            "archived",
        ]
        | None,
        Query(description="Only this status"),
    ] = None,
    tag: Annotated[str | None, Query(max_length=_MAX_TEXT, description="Only definitions with this tag")] = None,
    name: Annotated[str | None, Query(max_length=_MAX_TEXT, description="Only names that contain this text, in any case")] = None,
    owner: Annotated[str | None, Query(max_length=_MAX_TEXT, description="Only definitions of this owner")] = None,
    sort: Annotated[
        Literal["key", "-key", "name", "-name", "created_at", "-created_at", "updated_at", "-updated_at"],
        Query(description="Field to sort by; `-` reverses the order"),
    ] = "key",
    *,
    include_archived: Annotated[bool, Query(description="Include archived definitions")] = False,
) -> Filter:
    return Filter(status, tag, name, owner, include_archived, sort)


Filtered = Annotated[Filter, Depends(_filter_of)]

_KINDS: Final = {
    "segments": SEGMENTS,
    "computed-traits": TRAITS,
    "webhooks": WEBHOOKS,
    "lists": LISTS,
    "campaigns": CAMPAIGNS,
    "targets": TARGETS,
    "policy": POLICIES,
    "event-types": EVENT_TYPES,
    "views": VIEWS,
}
"""Collection in the path -> kind of definition, whose revisions the audit log contains."""

COMMON: Final = (400, 401, 403, 500, 503)
"""The errors of every route with a parameter or a body."""


def definition_routes(kind: Kind, path: str, writer: Role) -> APIRouter:
    """Return the routes under `path`. Reads need the role viewer, writes the role `writer`.

    A view is read by a route of its own (`starling_api.reports.view_routes`): materialised views have the same path.
    """
    router = APIRouter(prefix=path, tags=[kind.title + "s"], responses=problems(*COMMON))
    _add_collection(router, kind, writer)
    _add_single(router, kind, writer)
    return router


def _add_collection(router: APIRouter, kind: Kind, writer: Role) -> None:
    """Add the routes that create a definition and list all."""
    title, a = kind.title, "An" if kind.title[0] in "aeiou" else "A"
    router.add_api_route(
        "", _define(kind, writer), methods=["POST"], operation_id=f"create_{_name(kind)}",
        summary=f"Create a {title}",
        description=f"{a} {title} needs a key that was never used before. The response has its first version.",
        status_code=201,
        responses={201: {"model": MODELS[kind.name], "description": "Created"}, **problems(413, 422, 501)},
        openapi_extra=body_of(DEFINITIONS[kind.name]),
    )  # fmt: skip
    router.add_api_route(
        "", _list(kind), methods=["GET"], operation_id=f"list_{_name(kind)}s",
        summary=f"List {title}s",
        description="Archived definitions are absent unless `include_archived` is true or `status` is `archived`.",
        responses={200: {"model": PAGES[kind.name]}},
    )  # fmt: skip


def _add_single(router: APIRouter, kind: Kind, writer: Role) -> None:
    """Add the routes that read, change and archive one definition."""
    view: dict[int | str, dict[str, Any]] = {200: {"model": MODELS[kind.name]}}
    title, name = kind.title, _name(kind)
    if kind is not VIEWS:
        router.add_api_route(
            "/{key}", _read(kind), methods=["GET"], operation_id=f"get_{name}",
            summary=f"Read a {title}",
            description="Archived definitions are found too. The response can be edited and sent back with `PUT`.",
            responses={**view, **problems(404)},
        )  # fmt: skip
    router.add_api_route(
        "/{key}", _revise(kind, writer), methods=["PUT"], operation_id=f"update_{name}",
        summary=f"Change a {title}",
        description="The body replaces the definition. A changed meaning makes a new version. An equal body has no effect.",
        responses={**view, **problems(404, 409, 412, 413, 422, 501)},
        openapi_extra=body_of(UPDATES[kind.name]),
    )  # fmt: skip
    router.add_api_route(
        "/{key}", _archive(kind, writer), methods=["DELETE"], operation_id=f"archive_{name}",
        summary=f"Archive a {title}",
        description="An archived definition stays readable, and its key stays taken. A repetition has no effect.",
        status_code=204,
        responses=problems(404, 409, 412, 422),
    )  # fmt: skip


def _name(kind: Kind) -> str:
    """Return the part of operation ids."""
    return kind.title.replace(" ", "_")


def lifecycle_routes(kind: Kind, path: str, writer: Role) -> APIRouter:
    """Return the routes that pause and resume a definition."""
    router = APIRouter(prefix=path, tags=[kind.title + "s"], responses=problems(*COMMON, 404, 409, 412, 422))
    operations = (
        ("pause", "The members of a paused segment stay unchanged, and the feed contains no change of it.", Commands.pause),
        (
            "resume",
            "The segment catches up with the events of the pause, and the feed contains the resulting changes.",
            Commands.resume,
        ),
    )
    for name, description, operation in operations:
        router.add_api_route(
            f"/{{key}}/{name}",
            lifecycle(kind, writer, operation),
            methods=["POST"],
            summary=f"{name.title()} a {kind.title}",
            description=description,
            operation_id=f"{name}_{kind.title}",
            responses={200: {"model": MODELS[kind.name]}},
        )
    return router


def webhook_routes(kind: Kind, path: str, writer: Role) -> APIRouter:
    """Return the routes that rotate a secret and enable a disabled webhook."""
    router = APIRouter(prefix=path, tags=[kind.title + "s"], responses=problems(*COMMON, 404, 409, 412, 422))
    router.add_api_route(
        "/{key}/rotate-secret",
        _rotate(kind, writer),
        methods=["POST"],
        summary="Rotate the secret of a webhook",
        description="The response has the new secret. For 24 hours each message has two signatures, of the new and of the previous "
        "secret. A webhook that is disabled stays disabled.",
        operation_id="rotate_webhook_secret",
        responses={200: {"model": MODELS[kind.name]}},
    )
    router.add_api_route(
        "/{key}/enable",
        lifecycle(kind, writer, Commands.enable),
        methods=["POST"],
        summary="Enable a webhook again",
        description="A webhook is disabled after its endpoint has answered 410. The changes of the meantime are not sent.",
        operation_id="enable_webhook",
        responses={200: {"model": MODELS[kind.name]}},
    )
    return router


def batch_routes(writer: Role) -> APIRouter:
    """Return the route that writes many segments."""
    router = APIRouter(tags=["segments"], responses=problems(*COMMON, 409, 413, 422, 501))

    @router.post(
        "/v1/segments:batch",
        operation_id="apply_segments",
        summary="Create or change many segments",
        responses={200: {"model": SegmentBatchResultModel}},
        openapi_extra=body_of("SegmentBatch"),
    )
    def apply(
        services: UsedServices, write: Annotated[Write, Depends(unversioned_write_with_body(writer, parse_json))]
    ) -> Response:
        """The write is atomic. An existing key is changed, a new key is created. A segment may use an earlier one of the batch.

        A segment with a `revision` is refused if the stored segment has another one.
        """

        def act() -> Stored:
            definitions = commands_for(services, write).apply(write.author, _segments_in(write.document))
            return Stored(200, to_json({"items": [_document(services, SEGMENTS, write, one) for one in definitions]}), None)

        return answered(services, write, act)

    return router


def _segments_in(document: object) -> list[object]:
    segments = document.get("segments") if isinstance(document, dict) else None
    if not isinstance(document, dict) or document.keys() != {"segments"} or not isinstance(segments, list):
        raise DefinitionRefused(
            (FieldError("", "wrong_type", "it is not a batch", 'an object with "segments": a list of segments'),)
        )
    if not 0 < len(segments) <= MAX_BATCH:
        raise DefinitionRefused((FieldError("/segments", "wrong_type", f"it has {len(segments)} segments", f"1 to {MAX_BATCH}"),))
    return segments


def lifecycle(kind: Kind, writer: Role, operation: Callable[[Commands, Kind, Author, str, int | None], Definition]) -> Endpoint:
    """Return the endpoint of an operation without a body."""

    def act_on(key: str, services: UsedServices, write: Annotated[Write, Depends(write_by(writer))]) -> Response:
        def act() -> Stored:
            definition = operation(commands_for(services, write), kind, write.author, key, write.if_match)
            return Stored(200, to_json(_document(services, kind, write, definition)), etag(definition))

        return answered(services, write, act)

    return act_on


def _rotate(kind: Kind, writer: Role) -> Endpoint:
    def rotate(key: str, services: UsedServices, write: Annotated[Write, Depends(write_by(writer))]) -> Response:
        def act() -> Stored:
            definition = commands_for(services, write).rotate_secret(kind, write.author, key, write.if_match)
            return Stored(200, to_json(_document_with_secret(services, kind, write, definition)), etag(definition))

        return answered(services, write, act, partial(_with_plain_secret, services, kind, write))

    return rotate


def _define(kind: Kind, writer: Role) -> Endpoint:
    def define(services: UsedServices, write: Annotated[Write, Depends(unversioned_write_with_body(writer))]) -> Response:
        def act() -> Stored:
            definition = commands_for(services, write).define(kind, write.author, write.document)
            return Stored(201, to_json(_document_with_secret(services, kind, write, definition)), etag(definition))

        return answered(services, write, act, partial(_with_plain_secret, services, kind, write))

    return define


def _list(kind: Kind) -> Endpoint:
    def list_(services: UsedServices, caller: Viewer, page: Page, wanted: Filtered) -> Response:
        return JSONResponse(services.queries.definitions(kind, caller.workspace, page, wanted))

    return list_


def _read(kind: Kind) -> Endpoint:
    def read(key: str, services: UsedServices, caller: Viewer) -> Response:
        definition, shown = services.queries.definition(kind, caller.workspace, key)
        return JSONResponse(shown, headers={"ETag": etag(definition)})

    return read


def _revise(kind: Kind, writer: Role) -> Endpoint:
    def revise(key: str, services: UsedServices, write: Annotated[Write, Depends(write_with_body(writer))]) -> Response:
        def act() -> Stored:
            definition = commands_for(services, write).revise(kind, write.author, key, write.document, write.if_match)
            return Stored(200, to_json(_document(services, kind, write, definition)), etag(definition))

        return answered(services, write, act)

    return revise


def _archive(kind: Kind, writer: Role) -> Endpoint:
    def archive(key: str, services: UsedServices, write: Annotated[Write, Depends(write_by(writer))]) -> Response:
        def act() -> Stored:
            commands_for(services, write).archive(kind, write.author, key, write.if_match)
            return Stored(204, "", None)

        return answered(services, write, act)

    return archive


def _document(services: Services, kind: Kind, write: Write, definition: Definition) -> dict[str, Any]:
    return services.queries.document(kind, write.author.workspace, definition)


def _document_with_secret(services: Services, kind: Kind, write: Write, definition: Definition) -> dict[str, Any]:
    """Return the response with its secret as it is stored, encrypted: the Idempotency-Key stores the response."""
    shown = _document(services, kind, write, definition)
    if kind.hidden is not None and kind.has_hidden(definition.document) and not write.dry_run:
        shown[kind.hidden] = definition.document[kind.hidden]
    return shown


def _with_plain_secret(services: Services, kind: Kind, write: Write, answer: Stored) -> Stored:
    if kind.hidden is None or write.dry_run:
        return answer
    document = services.commands.vault.opened(kind, write.author.workspace, msgspec.json.decode(answer.body))
    return answer._replace(body=to_json(document))


def commands_for(services: Services, write: Write) -> Commands:
    """Return the commands for the write, without an effect for a dry run."""
    return services.commands.dry() if write.dry_run else services.commands


def _unchanged(answer: Stored) -> Stored:
    return answer


def answered(
    services: Services, write: Write, act: Callable[[], Stored], shown: Callable[[Stored], Stored] = _unchanged
) -> Response:
    """Return the response of `act`, or the stored response of the Idempotency-Key. A dry run does not use the key.

    `shown` returns what is sent of a stored response.
    """
    if write.dry_run:
        answer = act()._replace(etag=None)
    else:
        audited = _audited(services, write, act)
        answer = shown(answer_once(services.answers, write.author.workspace, write.idempotency_key, write.fingerprint, audited))
    headers = {} if answer.etag is None else {"ETag": answer.etag}
    if answer.status == 204:
        return Response(status_code=204, headers=headers)
    return Response(answer.body, answer.status, headers, "application/json")


def _audited(services: Services, write: Write, act: Callable[[], Stored]) -> Callable[[], Stored]:
    """Return `act` with records in the audit log after its success."""
    kind = _KINDS.get(write.act.resource)

    def revision(key: str | None) -> int | None:
        found = None if kind is None or key is None else services.commands.reader.definition(write.author.workspace, kind.name, key)
        return None if found is None else found.revision

    def recorded() -> Stored:
        before = {key: found for key in _keys_in(write) if (found := revision(key)) is not None}
        answer = act()
        # Without an ETag the revision is that of the read model, which may still be the one before.
        shown = revision(write.act.key) if answer.etag is None else revision_in(answer.etag)
        unknown = answer.etag is None and shown == before.get(write.act.key or "")
        after = None if unknown else shown
        services.audit.record(write.act, changed_by(write.act, answer.body, before, after))
        return answer

    return recorded


def _keys_in(write: Write) -> list[str]:
    """Return the keys that the write may change, as far as the request names them."""
    if write.act.key is not None:
        return [write.act.key]
    if write.act.resource == "policy":  # the only one of its workspace, without a key in the path
        return [POLICY_KEY]
    segments = write.document.get("segments") if isinstance(write.document, dict) else None
    return [one["key"] for one in segments or () if isinstance(one, dict) and isinstance(one.get("key"), str)]


def etag(definition: Definition) -> str:
    """Return the revision in quotes."""
    return f'"{definition.revision}"'
