"""Edge: define, list, read, revise and archive; the same five routes for every kind of definition."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response
from fastapi.responses import JSONResponse

from starling_api.definitions import Author, Definition
from starling_api.idempotency import answer_once
from starling_api.kinds import Kind
from starling_api.ports import Stored
from starling_api.repository import to_json
from starling_api.requests import Page, Services, UsedServices, Viewer, Write, write_by, write_with_body
from starling_api.service import Commands
from starling_api.tokens import Role
from starling_api.views import VIEWS, PageView, ProblemView, body_schema

Endpoint = Callable[..., Response]

PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": ProblemView, "description": description}
    for status, description in {
        401: "no token",
        403: "the role is too low",
        404: "no such thing",
        409: "archived, or in use",
        412: "somebody else was faster",
        422: "refused, with every fault",
        503: "a store is away",
    }.items()
}


def definition_routes(kind: Kind, path: str, writer: Role) -> APIRouter:
    """Routes under `path`. Reading needs a viewer, writing the role `writer`."""
    router = APIRouter(prefix=path, tags=[kind.title + "s"], responses=_problems(401, 403, 503))
    view = VIEWS[kind.name]
    body = {"requestBody": {"required": True, "content": {"application/json": {"schema": body_schema(kind.name)}}}}

    def add(method: str, tail: str, endpoint: Endpoint, summary: str, **more: Any) -> None:
        router.add_api_route(tail, endpoint, methods=[method], summary=summary, operation_id=f"{method}_{path}{tail}", **more)

    created: dict[int | str, dict[str, Any]] = {201: {"model": view}, **_problems(422)}
    add("POST", "", _define(kind, writer), f"Define a {kind.title}", status_code=201, responses=created, openapi_extra=body)
    add("GET", "", _list(kind), f"List {kind.title}s", responses={200: {"model": PageView[view]}})  # type: ignore[valid-type]
    add("GET", "/{key}", _read(kind), f"Read a {kind.title}", responses={200: {"model": view}, **_problems(404)})
    revised: dict[int | str, dict[str, Any]] = {200: {"model": view}, **_problems(404, 409, 412, 422)}
    add("PUT", "/{key}", _revise(kind, writer), f"Make a new version of a {kind.title}", responses=revised, openapi_extra=body)
    gone = _problems(404, 409, 412)
    add("DELETE", "/{key}", _archive(kind, writer), f"Archive a {kind.title}", status_code=204, responses=gone)
    return router


def lifecycle_routes(kind: Kind, path: str, writer: Role) -> APIRouter:
    """Pause and resume, for kinds of which something is kept up."""
    router = APIRouter(prefix=path, tags=[kind.title + "s"], responses=_problems(401, 403, 404, 409, 412, 503))
    ways = (
        ("pause", f"Pause a {kind.title}", "Its members stay as they are, and nobody is told anything.", Commands.hold),
        ("resume", f"Resume a {kind.title}", "It catches up: what is different then is announced.", Commands.resume),
    )
    for name, summary, description, turn in ways:
        router.add_api_route(
            f"/{{key}}/{name}",
            _turn(kind, writer, turn),
            methods=["POST"],
            summary=summary,
            description=description,
            operation_id=f"POST_{path}/{{key}}/{name}",
            responses={200: {"model": VIEWS[kind.name]}},
        )
    return router


def _turn(kind: Kind, writer: Role, turn: Callable[[Commands, Kind, Author, str, int | None], Definition]) -> Endpoint:
    def act_on(key: str, services: UsedServices, write: Annotated[Write, Depends(write_by(writer))]) -> Response:
        def act() -> Stored:
            definition = turn(services.commands, kind, write.author, key, write.if_match)
            return Stored(200, to_json(_document(services, kind, write, definition)), etag(definition))

        return answered(services, write, act)

    return act_on


def _define(kind: Kind, writer: Role) -> Endpoint:
    def define(services: UsedServices, write: Annotated[Write, Depends(write_with_body(writer))]) -> Response:
        def act() -> Stored:
            definition = services.commands.define(kind, write.author, write.document)
            shown = _document(services, kind, write, definition)
            if kind.hidden is not None:
                shown[kind.hidden] = definition.document[kind.hidden]
            return Stored(201, to_json(shown), etag(definition))

        return answered(services, write, act)

    return define


def _list(kind: Kind) -> Endpoint:
    def list_(services: UsedServices, caller: Viewer, page: Page, *, include_archived: bool = False) -> Response:
        return JSONResponse(services.queries.definitions(kind, caller.workspace, page, archived=include_archived))

    return list_


def _read(kind: Kind) -> Endpoint:
    def read(key: str, services: UsedServices, caller: Viewer) -> Response:
        definition, shown = services.queries.definition(kind, caller.workspace, key)
        return JSONResponse(shown, headers={"ETag": etag(definition)})

    return read


def _revise(kind: Kind, writer: Role) -> Endpoint:
    def revise(key: str, services: UsedServices, write: Annotated[Write, Depends(write_with_body(writer))]) -> Response:
        def act() -> Stored:
            definition = services.commands.revise(kind, write.author, key, write.document, write.if_match)
            return Stored(200, to_json(_document(services, kind, write, definition)), etag(definition))

        return answered(services, write, act)

    return revise


def _archive(kind: Kind, writer: Role) -> Endpoint:
    def archive(key: str, services: UsedServices, write: Annotated[Write, Depends(write_by(writer))]) -> Response:
        def act() -> Stored:
            services.commands.archive(kind, write.author, key, write.if_match)
            return Stored(204, "", None)

        return answered(services, write, act)

    return archive


def _document(services: Services, kind: Kind, write: Write, definition: Definition) -> dict[str, Any]:
    return services.queries.shown(kind, write.author.workspace, definition)


def answered(services: Services, write: Write, act: Callable[[], Stored]) -> Response:
    """The answer to a write, or the one that its Idempotency-Key had before."""
    answer = answer_once(services.answers, write.author.workspace, write.idempotency_key, write.fingerprint, act)
    headers = {} if answer.etag is None else {"ETag": answer.etag}
    if answer.status == 204:
        return Response(status_code=204, headers=headers)
    return Response(answer.body, answer.status, headers, "application/json")


def etag(definition: Definition) -> str:
    """The version in quotes."""
    return f'"{definition.version}"'


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: PROBLEMS[status] for status in statuses}
