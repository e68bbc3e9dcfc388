"""Edge: the routes of imports."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Response
from fastapi.responses import JSONResponse

from starling_api.definitions.repository import to_json
from starling_api.definitions.routes import COMMON, answered
from starling_api.http.access.auth import Role
from starling_api.http.dependencies import (
    Page,
    UsedServices,
    Viewer,
    Write,
    parse_json,
    unversioned_write_by,
    unversioned_write_with_body,
)
from starling_api.http.openapi.bodies import body_of
from starling_api.http.problems import problems
from starling_api.imports.models import ImportModel, ImportPageModel, ImportRejectPageModel
from starling_api.ports import Stored

import_router = APIRouter(prefix="/v1/imports", tags=["imports"], responses=problems(*COMMON))

_CREATE: Final[dict[int | str, dict[str, Any]]] = {201: {"model": ImportModel}, **problems(400, 408, 409, 413, 422)}
_PAGE: Final[dict[int | str, dict[str, Any]]] = {200: {"model": ImportPageModel}, **problems(400)}
_READ: Final[dict[int | str, dict[str, Any]]] = {200: {"model": ImportModel}, **problems(404)}
_CANCEL: Final[dict[int | str, dict[str, Any]]] = {200: {"model": ImportModel}, **problems(400, 404, 409, 422)}
_REPEAT: Final[dict[int | str, dict[str, Any]]] = {200: {"model": ImportModel}, **problems(400, 404, 408, 409, 413, 422)}
_SCHEDULE: Final[dict[int | str, dict[str, Any]]] = {200: {"model": ImportModel}, **problems(400, 404, 408, 409, 413, 422)}
_REJECTS: Final[dict[int | str, dict[str, Any]]] = {200: {"model": ImportRejectPageModel}, **problems(400, 404)}


@import_router.post(
    "",
    operation_id="create_import",
    summary="Import files or rows of a table",
    status_code=201,
    responses=_CREATE,
    openapi_extra=body_of("ImportRequest"),
)
def create_import(
    services: UsedServices, write: Annotated[Write, Depends(unversioned_write_with_body(Role.ADMIN, parse_json))]
) -> Response:
    """The Spark job `imports` reads files, or rows of a database or an Iceberg table, and sends each row to the ingest API, or adds
    its user to a list. An event older than the `expires_after` of a campaign does not trigger it; a membership change from it can.
    Needs the role admin, because the job reads with its own rights.
    """

    def act() -> Stored:
        made = services.imports.create(write.author.workspace, write.document, dry_run=write.dry_run)
        return Stored(201, to_json(made), None)

    return answered(services, write, act)


@import_router.post(
    "/{key}/run",
    operation_id="repeat_import",
    summary="Run an import again",
    responses=_REPEAT,
    openapi_extra=body_of("ImportRepetition"),
)
def repeat_import(
    key: str, services: UsedServices, write: Annotated[Write, Depends(unversioned_write_with_body(Role.ADMIN, parse_json))]
) -> Response:
    """The job sends the rows that are new or changed since the last run. Files are imported once. `deletions` lets this run
    delete traits, members or products of any number of rows. Needs the role admin.
    """

    def act() -> Stored:
        return Stored(
            200, to_json(services.imports.repeat(write.author.workspace, key, write.document, dry_run=write.dry_run)), None
        )

    return answered(services, write, act)


@import_router.put(
    "/{key}/schedule",
    operation_id="schedule_import",
    summary="Set when an import runs again",
    responses=_SCHEDULE,
    openapi_extra=body_of("ImportSchedule"),
)
def schedule_import(
    key: str, services: UsedServices, write: Annotated[Write, Depends(unversioned_write_with_body(Role.ADMIN, parse_json))]
) -> Response:
    """The times count from now on. A run that waits or runs goes on. `{"schedule": null}` removes the schedule. Needs the role
    admin.
    """

    def act() -> Stored:
        return Stored(
            200, to_json(services.imports.schedule(write.author.workspace, key, write.document, dry_run=write.dry_run)), None
        )

    return answered(services, write, act)


@import_router.get("", operation_id="list_imports", summary="List imports", responses=_PAGE)
def list_imports(services: UsedServices, caller: Viewer, page: Page) -> JSONResponse:
    """The imports of this workspace, by key."""
    return JSONResponse(services.imports.page(caller.workspace, page))


@import_router.get("/{key}", operation_id="get_import", summary="Read an import", responses=_READ)
def get_import(key: str, services: UsedServices, caller: Viewer) -> JSONResponse:
    """One import with the progress of its files."""
    return JSONResponse(services.imports.one(caller.workspace, key))


@import_router.get("/{key}/rejects", operation_id="list_import_rejects", summary="List rejected rows", responses=_REJECTS)
def list_rejects(key: str, services: UsedServices, caller: Viewer, page: Page) -> JSONResponse:
    """The rows that were not imported, by file and row, with the reason and the cure. They are kept for 90 days."""
    return JSONResponse(services.imports.rejects(caller.workspace, key, page))


@import_router.delete("/{key}", operation_id="cancel_import", summary="Cancel an import", responses=_CANCEL)
def cancel_import(key: str, services: UsedServices, write: Annotated[Write, Depends(unversioned_write_by(Role.ADMIN))]) -> Response:
    """The job sends no further batch. Rows that were sent stay, and the key stays used. An import with a schedule rests until it is
    run again.
    """

    def act() -> Stored:
        return Stored(200, to_json(services.imports.cancel(write.author.workspace, key, dry_run=write.dry_run)), None)

    return answered(services, write, act)
