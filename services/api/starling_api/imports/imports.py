"""Core: imports: requests, progress, rejected rows, repetition and cancellation."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from starling_api.definitions.webhook_fields import MASK
from starling_api.http.errors import (
    BadImport,
    BadRequest,
    ImportEnded,
    ImportExists,
    ImportRunning,
    NotFound,
    SecretsKeyMissing,
)
from starling_api.http.pagination import PageOf, cut
from starling_common.security.sealing import KeyMissing, Place, Sealer, Unreadable, is_sealed
from starling_common.time.instants import format_instant
from starling_common.time.timezones import DEFAULT
from starling_rules.imports import (
    CANCELLED,
    DONE,
    ENDED,
    FAILED,
    RUNNING,
    WAITING,
    ImportRequest,
    ImportState,
    Invalid,
    is_due,
    next_time_ms,
    parse_request,
    parse_schedule,
)
from starling_rules.jdbc import password_place
from starling_segments import FieldError

Document = dict[str, Any]

_LIST: Final = "imports"
_KIND: Final = "import"
_PAGE: Final = 100
_NOT_STARTED: Final = "an operator starts the job: run it, or set STARLING_IMPORTS_RUNNER of the API"


class ImportRow(NamedTuple):
    """A stored import. `request`: its JSON, without the schedule. `due_after_ms`: the times of the schedule until then are past."""

    key: str
    request: str
    state: str
    message: str | None
    created_at_ms: int
    changed_at_ms: int | None
    schedule: str | None = None
    timezone: str | None = None
    due_after_ms: int | None = None


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

    def repeat(self, workspace: str, key: str, request: str, deletions: str | None, now_ms: int) -> bool:
        """Let an import that has ended wait again; return False if it has not ended. `deletions`: of this run alone."""

    def every(self) -> Sequence[ImportState]:
        """Return the states of the imports of all workspaces."""

    def queue(self, one: ImportState, now_ms: int) -> bool:
        """Let an import wait again by its schedule; return False if its state or its schedule is another one meanwhile."""

    def set_schedule(self, workspace: str, key: str, schedule: str | None, timezone: str | None, now_ms: int) -> bool:
        """Replace the schedule, whose earlier times are past; return False if there is no such import."""

    def replace(self, workspace: str, key: str, former: str, request: str) -> bool:
        """Replace a request; return False if another call has changed it."""

    def cancel(self, workspace: str, key: str, states: Sequence[str], now_ms: int) -> bool:
        """Cancel an import in one of these states; return False if it has another one."""


class RotatedPasswords(NamedTuple):
    """What a rotation of the key has done. `rewritten`: keys of imports; `unreadable`: key -> why it stays as it is."""

    rewritten: Sequence[str]
    unreadable: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Imports:
    """The imports of all workspaces. `is_started`: the API starts the job that runs them. `sealer`: encrypts passwords.

    `zone_of`: returns the time zone of a workspace; `has_list`: whether it has a list with a key, which is not deleted.
    """

    store: ImportStore
    now_ms: Callable[[], int]
    is_started: bool = True
    sealer: Sealer = field(default_factory=Sealer)
    zone_of: Callable[[str], str] = lambda _: DEFAULT
    has_list: Callable[[str, str], bool] = lambda _workspace, _key: True

    def create(self, workspace: str, document: Any, *, dry_run: bool = False) -> Document:
        """Store an import, which the job then runs. Raises: BadImport, ImportExists, SecretsKeyMissing."""
        found = parse_request(document)
        if isinstance(found, Invalid):
            raise BadImport(found.errors)
        request = found.value
        if request.list_key is not None and not self.has_list(workspace, request.list_key):
            reason = f"there is no list {request.list_key!r}"
            raise BadImport([FieldError("/list_key", "unknown_list", reason, "create it by PUT /v1/lists/KEY, or correct the key")])
        if request.jdbc is not None and request.jdbc.password is not None:
            request = self._with_password(workspace, request, request.jdbc.password, "/jdbc/password")
        zone = None if request.schedule is None else request.timezone or self.zone_of(workspace)
        text = msgspec.json.encode(msgspec.structs.replace(request, schedule=None, timezone=None)).decode()
        now_ms = self.now_ms()
        row = ImportRow(request.key, text, WAITING, None, now_ms, None, request.schedule, zone, now_ms)
        if (self.store.find(workspace, row.key) is not None) if dry_run else not self.store.add(workspace, row):
            raise ImportExists(f"there is an import {row.key!r} in this workspace: give this one another key")
        return self._shown(workspace, row, ())

    def repeat(self, workspace: str, key: str, document: Any, *, dry_run: bool = False) -> Document:
        """Run an import of a database or an Iceberg table again.

        `document`: an object that may have a new `password`, and `deletions` for this run.

        Raises: NotFound, BadRequest, BadImport, ImportRunning, SecretsKeyMissing.
        """
        row = self._found(workspace, key)
        request = msgspec.json.decode(row.request, type=ImportRequest)
        _check_database(request)
        if errors := list(_repetition_errors(request, document)):
            raise BadImport(errors)
        if "password" in document:
            request = self._with_password(workspace, request, document["password"], "/password")
        text, now_ms = msgspec.json.encode(request).decode(), self.now_ms()
        if row.state not in ENDED or not (dry_run or self.store.repeat(workspace, key, text, document.get("deletions"), now_ms)):
            raise ImportRunning(f"the import {key!r} has not ended: wait for its end, or cancel it")
        return self._shown(workspace, row._replace(state=WAITING, message=None, changed_at_ms=now_ms), ())

    def schedule(self, workspace: str, key: str, document: Any, *, dry_run: bool = False) -> Document:
        """Replace the schedule of an import of a database or an Iceberg table. A run that waits or runs goes on.

        Raises: NotFound, BadRequest, BadImport.
        """
        row = self._found(workspace, key)
        _check_database(msgspec.json.decode(row.request, type=ImportRequest))
        found = parse_schedule(document)
        if isinstance(found, Invalid):
            raise BadImport(found.errors)
        schedule = found.value.schedule
        zone = None if schedule is None else found.value.timezone or self.zone_of(workspace)
        now_ms = self.now_ms()
        if not (dry_run or self.store.set_schedule(workspace, key, schedule, zone, now_ms)):
            raise NotFound(_KIND, key)
        row = row._replace(schedule=schedule, timezone=zone, due_after_ms=now_ms)
        return self._shown(workspace, row, self.store.files(workspace, key))

    def queue_due(self) -> dict[str, int]:
        """Let the imports wait whose time has come; return the number of those that wait or run, by state.

        Several processes may do so at the same time: one of them queues a run. Raises: DatabaseUnavailable.
        """
        unfinished = dict.fromkeys((WAITING, RUNNING), 0)
        for one in self.store.every():
            now_ms = self.now_ms()
            if one.state in unfinished:
                unfinished[one.state] += 1
            elif is_due(one, now_ms) and self.store.queue(one, now_ms):
                unfinished[WAITING] += 1
        return unfinished

    def page(self, workspace: str, page: PageOf) -> Document:
        """Return imports by key, without their files."""
        (after,) = page.after(_LIST, ("",))
        rows, cursor = cut(self.store.page(workspace, after, page.limit + 1), page.limit, _LIST, lambda row: (row.key,))
        return {"items": [self._summary(workspace, row) for row in rows], "next_cursor": cursor, "as_of": None}

    def one(self, workspace: str, key: str) -> Document:
        """Return one import with the progress of its files. Raises: NotFound."""
        return self._shown(workspace, self._found(workspace, key), self.store.files(workspace, key))

    def rejects(self, workspace: str, key: str, page: PageOf) -> Document:
        """Return rejected rows, by file and row. Raises: NotFound."""
        self._found(workspace, key)
        name = f"rejects {key}"
        file, row = page.after(name, ("", 0))
        found = self.store.rejects(workspace, key, (file, row), page.limit + 1)
        rows, cursor = cut(found, page.limit, name, lambda one: (one.file, one.row))
        return {"items": [{**one._asdict(), "column": one.column or None} for one in rows], "next_cursor": cursor, "as_of": None}

    def cancel(self, workspace: str, key: str, *, dry_run: bool = False) -> Document:
        """Cancel an import: the job sends no further batch. Rows that were sent stay. Raises: NotFound, ImportEnded.

        An import with a schedule can be cancelled between its runs too; it then has no further one until it is run again.
        """
        row = self._found(workspace, key)
        now_ms = self.now_ms()
        states = (WAITING, RUNNING) if row.schedule is None else (WAITING, RUNNING, DONE, FAILED)
        if row.state not in states or not (dry_run or self.store.cancel(workspace, key, states, now_ms)):
            raise ImportEnded(f"the import {key!r} has ended: its state is {self._found(workspace, key).state}")
        return self._shown(workspace, row._replace(state=CANCELLED, changed_at_ms=now_ms), self.store.files(workspace, key))

    def rotate_key(self, workspace: str, *, dry_run: bool = False) -> RotatedPasswords:
        """Encrypt every password that is encrypted with an older key with the newest one. Raises: SecretsKeyMissing."""
        rewritten, unreadable = list[str](), dict[str, str]()
        for row in self._all(workspace):
            request = msgspec.json.decode(row.request, type=ImportRequest)
            if request.jdbc is None or request.jdbc.password is None or self.sealer.is_current(request.jdbc.password):
                continue
            try:
                plain = self.sealer.open(request.jdbc.password, Place(*password_place(workspace, row.key)))
            except Unreadable as cause:
                unreadable[row.key] = str(cause)
                continue
            text = msgspec.json.encode(self._sealed(workspace, request, plain)).decode()
            if dry_run or self.store.replace(workspace, row.key, row.request, text):  # else it has a new password
                rewritten.append(row.key)
        return RotatedPasswords(rewritten, unreadable)

    def _all(self, workspace: str) -> Iterator[ImportRow]:
        after = ""
        while rows := self.store.page(workspace, after, _PAGE):
            yield from rows
            after = rows[-1].key

    def _with_password(self, workspace: str, request: ImportRequest, password: str, pointer: str) -> ImportRequest:
        """Return the request with the encrypted password. Raises: BadImport, SecretsKeyMissing."""
        if password == MASK or is_sealed(password):
            raise BadImport(
                [FieldError(pointer, "bad_password", "it is no password, but what is shown for one", "give it in plain")]
            )
        return self._sealed(workspace, request, password)

    def _sealed(self, workspace: str, request: ImportRequest, password: str) -> ImportRequest:
        """Return the request with the encrypted password. Raises: SecretsKeyMissing."""
        try:
            sealed = self.sealer.seal(password, Place(*password_place(workspace, request.key)))
        except KeyMissing as missing:
            raise SecretsKeyMissing(str(missing)) from None
        assert request.jdbc is not None  # noqa: S101 - the callers have checked it
        return msgspec.structs.replace(request, jdbc=msgspec.structs.replace(request.jdbc, password=sealed))

    def _found(self, workspace: str, key: str) -> ImportRow:
        found = self.store.find(workspace, key)
        if found is None:
            raise NotFound(_KIND, key)
        return found

    def _summary(self, workspace: str, row: ImportRow) -> Document:
        request: dict[str, Any] = msgspec.to_builtins(msgspec.json.decode(row.request, type=ImportRequest))
        if "password" in request.get("jdbc", ()):
            request["jdbc"]["password"] = MASK
        state = ImportState(workspace, row.key, row.state, row.schedule, row.timezone, row.due_after_ms)
        next_ms = next_time_ms(state, self.now_ms())
        waits = row.state == WAITING and row.message is None and not self.is_started
        return {
            **request,
            "schedule": row.schedule,
            "timezone": row.timezone,
            "next_run_at": None if next_ms is None else format_instant(next_ms),
            "state": row.state,
            "message": _NOT_STARTED if waits else row.message,
            "created_at": format_instant(row.created_at_ms),
            "changed_at": None if row.changed_at_ms is None else format_instant(row.changed_at_ms),
        }

    def _shown(self, workspace: str, row: ImportRow, files: Sequence[ImportFileRow]) -> Document:
        counts = {name: sum(getattr(file, name) for file in files) for name in ("rows_done", "accepted", "rejected")}
        return {**self._summary(workspace, row), **counts, "files": [file._asdict() for file in files]}


def _check_database(request: ImportRequest) -> None:
    """Raises: BadRequest."""
    if request.source is None:
        raise BadRequest(
            "files_run_once", f"the import {request.key!r} has files, which are imported once: create one with another key"
        )


def _repetition_errors(request: ImportRequest, document: Any) -> Iterator[FieldError]:
    if not isinstance(document, dict):
        yield FieldError("", "bad_import", "it is no object", "send {}")
        return
    for name in document.keys() - {"password", "deletions"}:
        yield FieldError("", "bad_import", f"there is no field {str(name)[:64]!r}", "send password, deletions, or none")
    if not isinstance(document.get("password", ""), str):
        yield FieldError("/password", "bad_import", "it is no text", "give it in plain, or leave it out")
    elif "password" in document and request.jdbc is None:
        yield FieldError("/password", "bad_import", f"an import of the format {request.format} has none", "remove it")
    if "deletions" in document:
        if document["deletions"] != "any":
            yield FieldError("/deletions", "bad_import", "it is not any", "write any, or leave it out")
        elif not request.finds_deletions():
            reason = "rows that are gone have no effect on this import"
            yield FieldError("/deletions", "unexpected_deletions", reason, "remove it")
