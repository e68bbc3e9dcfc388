"""Edge: the routes of credentials: create, list, read, rotate and revoke."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from starling_api.credentials.bodies import CredentialKind, read_overlap
from starling_api.credentials.commands import CredentialCommands, Issued
from starling_api.definitions.repository import to_json
from starling_api.definitions.routes import COMMON, answered
from starling_api.http.access.auth import Caller, Role
from starling_api.http.dependencies import (
    Body,
    Page,
    Services,
    UsedServices,
    Write,
    at_least,
    parse_json,
    unversioned_write_by,
    unversioned_write_with_body,
)
from starling_api.http.openapi.bodies import body_of
from starling_api.http.problems import problems
from starling_api.ports import Stored

Admin = Annotated[Caller, Depends(at_least(Role.ADMIN))]
AdminWrite = Annotated[Write, Depends(unversioned_write_by(Role.ADMIN))]
WriteWithBody = Annotated[Write, Depends(unversioned_write_with_body(Role.ADMIN, parse_json))]
Id = Annotated[str, Path(alias="id", description="Id from the response that created it")]


def credential_routes(
    kind: CredentialKind, path: str, commands_of: Callable[[Services], CredentialCommands], models: Sequence[type[BaseModel]]
) -> APIRouter:
    """Return the routes under `path`, which need the role admin. `models`: of one credential, of a new secret, of a page."""
    title, name = kind.title, kind.title.replace(" ", "_")
    shown, issued, page_model = models
    router = APIRouter(prefix=path, tags=[f"{title}s"], responses=problems(*COMMON))
    body = "TokenRequest" if name == "token" else "WriteKeyRequest"

    @router.post(
        "",
        operation_id=f"create_{name}",
        summary=f"Create a {title}",
        description="The response has the secret. No later response has it: it is stored as its SHA-256 only. A repetition with "
        f"the same Idempotency-Key returns the {title} without its secret.",
        status_code=201,
        responses={201: {"model": issued, "description": "Created"}, **problems(413, 422)},
        openapi_extra=body_of(body),
    )
    def create(services: UsedServices, write: WriteWithBody) -> Response:
        commands = commands_of(services)
        return _issued(services, write, 201, commands, lambda: commands.create(write.author, write.document, dry_run=write.dry_run))

    @router.get(
        "",
        operation_id=f"list_{name}s",
        summary=f"List {title}s",
        description="The oldest first, revoked ones included, without secrets. Those of the settings are not listed.",
        responses={200: {"model": page_model}},
    )
    def all_of(services: UsedServices, caller: Admin, page: Page) -> Response:
        return JSONResponse(commands_of(services).all(caller.workspace, page))

    @router.get(
        "/{id}",
        operation_id=f"get_{name}",
        summary=f"Read a {title}",
        responses={200: {"model": shown}, **problems(404)},
    )
    def one(identifier: Id, services: UsedServices, caller: Admin) -> Response:
        """A revoked one is found too."""
        return JSONResponse(commands_of(services).one(caller.workspace, identifier))

    @router.delete(
        "/{id}",
        operation_id=f"revoke_{name}",
        summary=f"Revoke a {title}",
        description="Every process refuses all its secrets within five seconds. A revocation is final; a repetition has no effect.",
        status_code=204,
        responses=problems(404, 422),
    )
    def revoke(identifier: Id, services: UsedServices, write: AdminWrite) -> Response:
        def act() -> Stored:
            commands_of(services).revoke(write.author, identifier, dry_run=write.dry_run)
            return Stored(204, "", None)

        return answered(services, write, act)

    @router.post(
        "/{id}/rotate",
        operation_id=f"rotate_{name}",
        summary=f"Rotate the secret of a {title}",
        description="The response has the new secret. Earlier secrets work until the end of `overlap` (default 24h, at most 30d), "
        "or until their earlier expiry. `0s` ends them at once.",
        responses={200: {"model": issued}, **problems(404, 409, 413, 422)},
        openapi_extra=body_of("RotationRequest", required=False),
    )
    def rotate(identifier: Id, services: UsedServices, write: AdminWrite, body: Body) -> Response:
        commands = commands_of(services)
        whole = replace(write, fingerprint=hashlib.sha256(write.fingerprint.encode() + body).hexdigest())
        overlap_ms = read_overlap(parse_json(body) if body.strip() else {})
        return _issued(
            services, whole, 200, commands, lambda: commands.rotate(write.author, identifier, overlap_ms, dry_run=write.dry_run)
        )

    return router


def _issued(services: Services, write: Write, status: int, commands: CredentialCommands, act: Callable[[], Issued]) -> Response:
    """Return the response of `act` with its secret. What is stored for the Idempotency-Key has no secret."""
    made: list[dict[str, Any]] = []

    def stored() -> Stored:
        issued = act()
        shown = commands.shown(issued.credential)
        made.append({**shown, "secret": issued.secret})
        return Stored(status, to_json({**shown, "secret": None}), None)

    answer = answered(services, write, stored)
    if made:
        answer = JSONResponse(made[0], status)
    answer.headers["Cache-Control"] = "no-store"
    return answer
