"""Edge: uploaded lists and their members."""

import hashlib
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from typing import IO, Annotated, Any, Final

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse

from starling_api.definitions.definition import Author
from starling_api.definitions.kinds.kinds import LISTS
from starling_api.definitions.repository import to_json
from starling_api.definitions.routes import COMMON, Filtered, answered, commands_for, etag
from starling_api.http.access.auth import Role
from starling_api.http.dependencies import (
    Body,
    Page,
    Services,
    UsedServices,
    Viewer,
    Write,
    body_parts,
    parse_definition,
    services_of,
    write_by,
)
from starling_api.http.errors import Archived, NotFound, TooLarge
from starling_api.http.openapi.bodies import UPDATES, body_of, users_body
from starling_api.http.problems import problems
from starling_api.lists.lists import Lists
from starling_api.lists.models import ListMemberPageModel, ListModel, ListPageModel, UploadModel
from starling_api.lists.uploads import count_ids, read_ids
from starling_api.ports import Stored
from starling_common.cassandra.read_models import ARCHIVED

MAX_UPLOAD_BYTES: Final = 64 * 1024 * 1024
_UPLOAD_TIMEOUTS: Final = 20
"""An upload may take this many times as long as another body."""
_IN_MEMORY_BYTES: Final = 1024 * 1024
"""Uploads above this size are spooled to disk."""

list_router = APIRouter(prefix="/v1/lists", tags=["lists"], responses=problems(*COMMON))

Writer = Annotated[Write, Depends(write_by(Role.EDITOR))]


@dataclass(frozen=True, slots=True)
class Upload:
    """An uploaded body. It is validated completely before it has an effect."""

    file: IO[bytes]
    as_csv: bool
    write: Write


async def _upload(request: Request, write: Writer) -> AsyncIterator[Upload]:
    digest = hashlib.sha256(write.fingerprint.encode())
    size_bytes = 0
    with tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES) as file:
        async for part in body_parts(request, _UPLOAD_TIMEOUTS * services_of(request).body_timeout_seconds):
            size_bytes += len(part)
            if size_bytes > MAX_UPLOAD_BYTES:
                raise TooLarge(f"an upload has at most {MAX_UPLOAD_BYTES} bytes")
            digest.update(part)
            file.write(part)
        as_csv = request.headers.get("content-type", "").startswith("text/csv")
        yield Upload(file, as_csv, replace(write, fingerprint=digest.hexdigest()))


Uploaded = Annotated[Upload, Depends(_upload)]

_SENT: Final[dict[int | str, dict[str, Any]]] = {200: {"model": UploadModel}, **problems(404, 409, 412, 413, 422)}
_KEPT: Final[dict[int | str, dict[str, Any]]] = {200: {"model": ListModel}, 201: {"model": ListModel, "description": "Created"}}


@list_router.get("", operation_id="list_lists", summary="List lists", responses={200: {"model": ListPageModel}})
def all_lists(services: UsedServices, caller: Viewer, page: Page, wanted: Filtered) -> Response:
    """Deleted lists are left out unless `include_archived` is true, or `status` is `archived`."""
    return JSONResponse(services.queries.definitions(LISTS, caller.workspace, page, wanted))


@list_router.get("/{key}", operation_id="get_list", summary="Read a list", responses={200: {"model": ListModel}, **problems(404)})
def read_list(key: str, services: UsedServices, caller: Viewer) -> Response:
    """The list without its members. The response can be edited and sent back with `PUT`."""
    definition, shown = services.queries.definition(LISTS, caller.workspace, key)
    return JSONResponse(shown, headers={"ETag": etag(definition)})


@list_router.put(
    "/{key}",
    operation_id="put_list",
    summary="Create or rename a list",
    responses=_KEPT | problems(409, 404, 412, 413, 422),
    openapi_extra=body_of(UPDATES[LISTS.name], required=False),
)
def put_list(key: str, services: UsedServices, write: Writer, body: Body) -> Response:
    """The body is optional. The status is 201 for a new list."""
    document = parse_definition(body) if body.strip() else {}
    whole = replace(write, fingerprint=hashlib.sha256(write.fingerprint.encode() + body).hexdigest())

    def act() -> Stored:
        created, definition = commands_for(services, write).put(LISTS, write.author, key, document, write.if_match)
        shown = services.queries.document(LISTS, write.author.workspace, definition)
        return Stored(201 if created else 200, to_json(shown), etag(definition))

    return answered(services, whole, act)


@list_router.delete(
    "/{key}",
    operation_id="delete_list",
    summary="Delete a list",
    status_code=204,
    responses=problems(404, 409, 412, 422),
)
def drop_list(key: str, services: UsedServices, write: Writer) -> Response:
    """All members are removed. A list that a segment uses cannot be deleted."""

    def act() -> Stored:
        commands_for(services, write).archive(LISTS, write.author, key, write.if_match)
        if not write.dry_run:
            services.lists.replace(write.author, key, ())
        return Stored(204, "", None)

    return answered(services, write, act)


@list_router.get(
    "/{key}/members",
    operation_id="list_list_members",
    summary="List the members of a list",
    responses={200: {"model": ListMemberPageModel}, **problems(404, 409)},
)
def list_members(key: str, services: UsedServices, caller: Viewer, page: Page) -> Response:
    """The order is arbitrary but stable across pages."""
    _must_exist(services, caller.workspace, key)
    as_of = services.queries.as_of()
    items, cursor = services.lists.members(caller.workspace, key, page)
    return JSONResponse({"items": items, "next_cursor": cursor, "as_of": as_of})


@list_router.put(
    "/{key}/members",
    operation_id="replace_list_members",
    summary="Replace the members of a list",
    responses=_SENT,
    openapi_extra=users_body(),
)
def replace_members(key: str, services: UsedServices, upload: Uploaded) -> Response:
    """The list has exactly these users afterwards. A repetition completes a failed upload."""
    return _write(services, key, upload, Lists.replace)


@list_router.post(
    "/{key}/members",
    operation_id="add_list_members",
    summary="Add users to a list",
    responses=_SENT,
    openapi_extra=users_body(),
)
def add_members(key: str, services: UsedServices, upload: Uploaded) -> Response:
    """Users that are already on the list stay on it."""
    return _write(services, key, upload, Lists.add)


@list_router.delete(
    "/{key}/members",
    operation_id="remove_list_members",
    summary="Remove users from a list",
    responses=_SENT,
    openapi_extra=users_body(),
)
def remove_members(key: str, services: UsedServices, upload: Uploaded) -> Response:
    """Users that are not on the list are ignored."""
    return _write(services, key, upload, Lists.remove)


def _write(services: Services, key: str, upload: Upload, do: Callable[[Lists, Author, str, Iterator[str]], int]) -> Response:
    author, as_csv = upload.write.author, upload.as_csv
    _must_exist(services, author.workspace, key)

    def act() -> Stored:
        sent = count_ids(upload.file, as_csv=as_csv)
        if not upload.write.dry_run:
            do(services.lists, author, key, read_ids(upload.file, as_csv=as_csv))
        return Stored(200, to_json({"key": key, "users": sent}), None)

    return answered(services, upload.write, act)


def _must_exist(services: Services, workspace: str, key: str) -> None:
    found = services.commands.reader.definition(workspace, LISTS.name, key)
    if found is None:
        raise NotFound(LISTS.title, key)
    if found.status == ARCHIVED:
        raise Archived(f"{key!r} is deleted: create a list with another key")
