"""Edge: the routes of credentials: create, list, read, rotate and revoke."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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


@dataclass(frozen=True, slots=True)
class _Subject:
    """What the routes of one kind of credential have of their own. Models: of one credential, of a new secret, of a page."""

    kind: CredentialKind
    commands_of: Callable[[Services], CredentialCommands]
    shown: type[BaseModel]
    issued: type[BaseModel]
    page: type[BaseModel]

    @property
    def title(self) -> str:
        return self.kind.title

    @property
    def name(self) -> str:
        """The part of operation ids."""
        return self.title.replace(" ", "_")


def credential_routes(
    kind: CredentialKind, path: str, commands_of: Callable[[Services], CredentialCommands], models: Sequence[type[BaseModel]]
) -> APIRouter:
    """Return the routes under `path`, which need the role admin. `models`: of one credential, of a new secret, of a page."""
    router = APIRouter(prefix=path, tags=[f"{kind.title}s"], responses=problems(*COMMON))
    subject = _Subject(kind, commands_of, *models)
    _add_collection(router, subject)
    _add_single(router, subject)
    _add_rotation(router, subject)
    return router


def _add_collection(router: APIRouter, subject: _Subject) -> None:
    """Add the routes that create a credential and list all."""
    title, name = subject.title, subject.name

    @router.post(
        "",
        operation_id=f"create_{name}",
        summary=f"Create a {title}",
        description="The response has the secret. No later response has it: it is stored as its SHA-256 only. A repetition with "
        f"the same Idempotency-Key returns the {title} without its secret.",
        status_code=201,
        responses={201: {"model": subject.issued, "description": "Created"}, **problems(413, 422)},
        openapi_extra=body_of("TokenRequest" if name == "token" else "WriteKeyRequest"),
    )
    def create(services: UsedServices, write: WriteWithBody) -> Response:
        commands = subject.commands_of(services)
        return _issued(services, write, 201, commands, lambda: commands.create(write.author, write.document, dry_run=write.dry_run))

    @router.get(
        "",
        operation_id=f"list_{name}s",
        summary=f"List {title}s",
        description="The oldest first, revoked ones included, without secrets. Those of the settings are not listed.",
        responses={200: {"model": subject.page}},
    )
    def all_of(services: UsedServices, caller: Admin, page: Page) -> Response:
        return JSONResponse(subject.commands_of(services).all(caller.workspace, page))


def _add_single(router: APIRouter, subject: _Subject) -> None:
    """Add the routes that read and revoke one credential."""

    @router.get(
        "/{id}",
        operation_id=f"get_{subject.name}",
        summary=f"Read a {subject.title}",
        responses={200: {"model": subject.shown}, **problems(404)},
    )
    def one(identifier: Id, services: UsedServices, caller: Admin) -> Response:
        """A revoked one is found too."""
        return JSONResponse(subject.commands_of(services).one(caller.workspace, identifier))

    @router.delete(
        "/{id}",
        operation_id=f"revoke_{subject.name}",
        summary=f"Revoke a {subject.title}",
        description="Every process refuses all its secrets within five seconds. A revocation is final; a repetition has no effect.",
        status_code=204,
        responses=problems(404, 422),
    )
    def revoke(identifier: Id, services: UsedServices, write: AdminWrite) -> Response:
        def act() -> Stored:
            subject.commands_of(services).revoke(write.author, identifier, dry_run=write.dry_run)
            return Stored(204, "", None)

        return answered(services, write, act)


def _add_rotation(router: APIRouter, subject: _Subject) -> None:
    @router.post(
        "/{id}/rotate",
        operation_id=f"rotate_{subject.name}",
        summary=f"Rotate the secret of a {subject.title}",
        description="The response has the new secret. Earlier secrets work until the end of `overlap` (default 24h, at most 30d), "
        "or until their earlier expiry. `0s` ends them at once.",
        responses={200: {"model": subject.issued}, **problems(404, 409, 413, 422)},
        openapi_extra=body_of("RotationRequest", required=False),
    )
    def rotate(identifier: Id, services: UsedServices, write: AdminWrite, body: Body) -> Response:
        commands = subject.commands_of(services)
        whole = replace(write, fingerprint=hashlib.sha256(write.fingerprint.encode() + body).hexdigest())
        overlap_ms = read_overlap(parse_json(body) if body.strip() else {})
        return _issued(
            services, whole, 200, commands, lambda: commands.rotate(write.author, identifier, overlap_ms, dry_run=write.dry_run)
        )


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
