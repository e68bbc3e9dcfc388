"""Edge: uploaded lists: the list itself, and who is on it."""

import hashlib
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from typing import IO, Annotated, Any, Final

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse

from starling_api.definitions import Author
from starling_api.errors import Archived, NotFound, TooLarge
from starling_api.kinds import LISTS
from starling_api.lists import Lists
from starling_api.ports import Stored
from starling_api.repository import to_json
from starling_api.requests import Body, Page, Services, UsedServices, Viewer, Write, parse_json, write_by
from starling_api.routes.definitions import PROBLEMS, answered, etag
from starling_api.tokens import Role
from starling_api.uploads import MAX_IDS, count_ids, read_ids
from starling_api.views import ListMemberView, ListView, PageView, UploadView
from starling_common.read_models import ARCHIVED

MAX_UPLOAD_BYTES: Final = 64 * 1024 * 1024
_IN_MEMORY_BYTES: Final = 1024 * 1024
"""A larger upload waits on disk."""

_PROBLEMS: Final[dict[int | str, dict[str, Any]]] = {status: PROBLEMS[status] for status in (401, 403, 404, 409, 503)}
list_router = APIRouter(prefix="/v1/lists", tags=["lists"], responses=_PROBLEMS)

Writer = Annotated[Write, Depends(write_by(Role.MARKETER))]


@dataclass(frozen=True, slots=True)
class Upload:
    """A body that is looked through before anything is done with it."""

    file: IO[bytes]
    as_csv: bool
    write: Write


async def _upload(request: Request, write: Writer) -> AsyncIterator[Upload]:
    digest = hashlib.sha256(write.fingerprint.encode())
    size_bytes = 0
    with tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES) as file:
        async for part in request.stream():
            size_bytes += len(part)
            if size_bytes > MAX_UPLOAD_BYTES:
                raise TooLarge(f"an upload has at most {MAX_UPLOAD_BYTES} bytes")
            digest.update(part)
            file.write(part)
        as_csv = request.headers.get("content-type", "").startswith("text/csv")
        yield Upload(file, as_csv, replace(write, fingerprint=digest.hexdigest()))


Uploaded = Annotated[Upload, Depends(_upload)]

_USERS_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["users"],
                    "additionalProperties": False,
                    "properties": {"users": {"type": "array", "items": {"type": "string"}, "maxItems": MAX_IDS}},
                }
            },
            "text/csv": {"schema": {"type": "string", "description": "an id a line"}},
        },
    }
}
_LIST_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 120}, "description": {"type": "string"}},
                }
            }
        }
    }
}
_SENT: Final[dict[int | str, dict[str, Any]]] = {200: {"model": UploadView}, 413: PROBLEMS[422], 422: PROBLEMS[422]}


@list_router.get("/{key}", summary="Read a list", responses={200: {"model": ListView}})
def read_list(key: str, services: UsedServices, caller: Viewer) -> Response:
    """The list itself; who is on it is at `/members`."""
    definition, shown = services.queries.definition(LISTS, caller.workspace, key)
    return JSONResponse(shown, headers={"ETag": etag(definition)})


@list_router.put(
    "/{key}",
    summary="Make a list, or name it anew",
    responses={200: {"model": ListView}, 201: {"model": ListView}},
    openapi_extra=_LIST_BODY,
)
def put_list(key: str, services: UsedServices, write: Writer, body: Body) -> Response:
    """The body may be missing. 201 when there was no such list."""
    document = parse_json(body) if body.strip() else {}
    whole = replace(write, fingerprint=hashlib.sha256(write.fingerprint.encode() + body).hexdigest())

    def act() -> Stored:
        made, definition = services.commands.put(LISTS, write.author, key, document, write.if_match)
        shown = services.queries.shown(LISTS, write.author.workspace, definition)
        return Stored(201 if made else 200, to_json(shown), etag(definition))

    return answered(services, whole, act)


@list_router.delete("/{key}", summary="Drop a list", status_code=204)
def drop_list(key: str, services: UsedServices, write: Writer) -> Response:
    """Nobody is on it any more. Refused while a segment asks for it."""

    def act() -> Stored:
        services.commands.archive(LISTS, write.author, key, write.if_match)
        services.lists.replace(write.author, key, ())
        return Stored(204, "", None)

    return answered(services, write, act)


@list_router.get("/{key}/members", summary="Who is on a list", responses={200: {"model": PageView[ListMemberView]}})
def list_members(key: str, services: UsedServices, caller: Viewer, page: Page) -> Response:
    """In an order of no meaning, which stays the same from page to page."""
    _must_exist(services, caller.workspace, key)
    as_of = services.queries.as_of()
    items, cursor = services.lists.members(caller.workspace, key, page)
    return JSONResponse({"items": items, "next_cursor": cursor, "as_of": as_of})


@list_router.put("/{key}/members", summary="Replace who is on a list", responses=_SENT, openapi_extra=_USERS_BODY)
def replace_members(key: str, services: UsedServices, upload: Uploaded) -> Response:
    """These and nobody else. What broke off is made whole by sending it again."""
    return _write(services, key, upload, Lists.replace)


@list_router.post("/{key}/members", summary="Add users to a list", responses=_SENT, openapi_extra=_USERS_BODY)
def add_members(key: str, services: UsedServices, upload: Uploaded) -> Response:
    """Whoever is on it already stays on it."""
    return _write(services, key, upload, Lists.add)


@list_router.delete("/{key}/members", summary="Take users off a list", responses=_SENT, openapi_extra=_USERS_BODY)
def remove_members(key: str, services: UsedServices, upload: Uploaded) -> Response:
    """Whoever is not on it stays off it."""
    return _write(services, key, upload, Lists.remove)


def _write(services: Services, key: str, upload: Upload, do: Callable[[Lists, Author, str, Iterator[str]], int]) -> Response:
    author, as_csv = upload.write.author, upload.as_csv
    _must_exist(services, author.workspace, key)

    def act() -> Stored:
        count_ids(upload.file, as_csv=as_csv)
        sent = do(services.lists, author, key, read_ids(upload.file, as_csv=as_csv))
        return Stored(200, to_json({"key": key, "users": sent}), None)

    return answered(services, upload.write, act)


def _must_exist(services: Services, workspace: str, key: str) -> None:
    found = services.commands.reader.definition(workspace, LISTS.name, key)
    if found is None:
        raise NotFound(LISTS.title, key)
    if found.status == ARCHIVED:
        raise Archived(f"{key!r} is dropped: make a new list with another key")
