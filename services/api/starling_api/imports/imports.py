"""Core: imports: requests, progress, rejected rows, and cancellation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from starling_api.http.errors import BadRequest, ImportEnded, ImportExists, NotFound
from starling_api.http.pagination import PageOf, cut
from starling_common.outcome import Refused
from starling_common.time.instants import format_instant
from starling_rules.imports import CANCELLED, ENDED, WAITING, ImportRequest, parse_request

Document = dict[str, Any]

_LIST: Final = "imports"
_NOT_STARTED: Final = "an operator starts the job: run it, or set STARLING_IMPORTS_RUNNER of the API"


class ImportRow(NamedTuple):
    """A stored import. `request`: its JSON."""

    key: str
    request: str
    state: str
    message: str | None
    created_at_ms: int
    changed_at_ms: int | None


class ImportFileRow(NamedTuple):
    """Progress of one file. `message`: why the file failed."""

    file: str
    rows_done: int
    accepted: int
    rejected: int
    complete: bool
    message: str | None


class RejectRow(NamedTuple):
    """A rejected row. `row`: 1 for the first row of data; `column`: "" for the whole row."""

    file: str
    row: int
    column: str
    code: str
    reason: str
    cure: str


class ImportStore(Protocol):
    """The tables of the imports. Every method may raise DatabaseUnavailable."""

    def add(self, workspace: str, row: ImportRow) -> bool:
        """Store a new import; return False if there is one with this key."""

    def find(self, workspace: str, key: str) -> ImportRow | None:
        """Return one import."""

    def page(self, workspace: str, after: str, most: int) -> Sequence[ImportRow]:
        """Return the imports after a key, by key."""

    def files(self, workspace: str, key: str) -> Sequence[ImportFileRow]:
        """Return the files of an import, by name."""

    def rejects(self, workspace: str, key: str, after: tuple[str, int], most: int) -> Sequence[RejectRow]:
        """Return the rejected rows after a file and a row, in this order."""

    def cancel(self, workspace: str, key: str, now_ms: int) -> bool:
        """Cancel an import; return False if it has ended."""


@dataclass(frozen=True, slots=True)
class Imports:
    """The imports of all workspaces. `is_started`: the API starts the job that runs them."""

    store: ImportStore
    now_ms: Callable[[], int]
    is_started: bool = True

    def create(self, workspace: str, document: Any, *, dry_run: bool = False) -> Document:
        """Store an import, which the job then runs. Raises: BadRequest, ImportExists."""
        request = parse_request(document)
        if isinstance(request, Refused):
            raise BadRequest(request.code, request.message)
        text = msgspec.json.encode(request.value).decode()
        row = ImportRow(request.value.key, text, WAITING, None, self.now_ms(), None)
        if (self.store.find(workspace, row.key) is not None) if dry_run else not self.store.add(workspace, row):
            raise ImportExists(f"there is an import {row.key!r} in this workspace: give this one another key")
        return self._shown(row, ())

    def page(self, workspace: str, page: PageOf) -> Document:
        """Return imports by key, without their files."""
        (after,) = page.after(_LIST, ("",))
        rows, cursor = cut(self.store.page(workspace, after, page.limit + 1), page.limit, _LIST, lambda row: (row.key,))
        return {"items": [self._summary(row) for row in rows], "next_cursor": cursor, "as_of": None}

    def one(self, workspace: str, key: str) -> Document:
        """Return one import with the progress of its files. Raises: NotFound."""
        return self._shown(self._found(workspace, key), self.store.files(workspace, key))

    def rejects(self, workspace: str, key: str, page: PageOf) -> Document:
        """Return rejected rows, by file and row. Raises: NotFound."""
        self._found(workspace, key)
        name = f"rejects {key}"
        file, row = page.after(name, ("", 0))
        found = self.store.rejects(workspace, key, (file, row), page.limit + 1)
        rows, cursor = cut(found, page.limit, name, lambda one: (one.file, one.row))
        return {"items": [{**one._asdict(), "column": one.column or None} for one in rows], "next_cursor": cursor, "as_of": None}

    def cancel(self, workspace: str, key: str, *, dry_run: bool = False) -> Document:
        """Cancel an import: the job sends no further batch. Rows that were sent stay. Raises: NotFound, ImportEnded."""
        row = self._found(workspace, key)
        now_ms = self.now_ms()
        if row.state in ENDED or not (dry_run or self.store.cancel(workspace, key, now_ms)):
            raise ImportEnded(f"the import {key!r} has ended: its state is {self._found(workspace, key).state}")
        return self._shown(row._replace(state=CANCELLED, changed_at_ms=now_ms), self.store.files(workspace, key))

    def _found(self, workspace: str, key: str) -> ImportRow:
        found = self.store.find(workspace, key)
        if found is None:
            raise NotFound("import", key)
        return found

    def _summary(self, row: ImportRow) -> Document:
        request: Mapping[str, Any] = msgspec.to_builtins(msgspec.json.decode(row.request, type=ImportRequest))
        waits = row.state == WAITING and row.message is None and not self.is_started
        return {
            **request,
            "state": row.state,
            "message": _NOT_STARTED if waits else row.message,
            "created_at": format_instant(row.created_at_ms),
            "changed_at": None if row.changed_at_ms is None else format_instant(row.changed_at_ms),
        }

    def _shown(self, row: ImportRow, files: Sequence[ImportFileRow]) -> Document:
        counts = {name: sum(getattr(file, name) for file in files) for name in ("rows_done", "accepted", "rejected")}
        return {**self._summary(row), **counts, "files": [file._asdict() for file in files]}
