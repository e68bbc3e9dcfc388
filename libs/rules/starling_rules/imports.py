"""Pure core: the description of an import. The API checks it, and the Spark job `imports` applies it."""

import re
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from starling_common.outcome import Done, Refused
from starling_rules.iceberg import IcebergSource, iceberg_errors, iceberg_table
from starling_rules.jdbc import JdbcSource, SourceError, jdbc_address, source_errors
from starling_rules.sql.schedule import is_timezone, next_run_ms, schedule_error
from starling_segments import FieldError

RUNNING: Final = "running"
WAITING: Final = "waiting"
DONE: Final = "done"
FAILED: Final = "failed"
CANCELLED: Final = "cancelled"
ENDED: Final = frozenset({DONE, FAILED, CANCELLED})

State: TypeAlias = Literal["waiting", "running", "done", "failed", "cancelled"]

PRODUCT_FIELDS: Final = ("category", "price", "brand", "name")
"""What the catalog has of a product."""
FIND_DELETIONS: Final = ("traits", "lists", "catalog")
"""The kinds for which a row that is gone has an effect."""
DEFAULT_MAX_REJECTS: Final = 10_000
MOST_REJECTS: Final = 1_000_000
_SCHEMES: Final = ("file", "s3", "s3a", "gs")
_KEY: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_PREFIX: Final = {"events": "properties", "catalog": "product"}
"""The fields of a kind; those of the other ones are `traits`."""
_FIELD: Final = re.compile(r"[a-z]+\.[^.]+")
_SHOWN: Final = 64
_SCHEDULE_CURE: Final = 'give minute, hour, day, month and weekday of cron, such as "15 * * * *"'


class ImportRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """One import. `columns`: the field of each column, such as `properties.revenue`; None: every column that has no other use.

    An event has `event` or `event_column`, and an account `account_column` with its id. `id_column`: its text identifies the row in
    all files of the import, or in its table. The users of the kind `lists` become members of the list `list_key`. Only the kind
    `catalog` has no `user_column`, but a `product_column`.
    `jdbc`: the source of the format `jdbc`, whose `uri` is that of a database; `iceberg`: that of the format `iceberg`, whose `uri`
    is that of a table, such as `iceberg:crm.customers`. `schedule`, `timezone`: when it runs again; they are stored beside the
    request.
    """

    key: str
    uri: str
    format: Literal["csv", "parquet", "jsonl", "jdbc", "iceberg"]
    kind: Literal["events", "traits", "accounts", "lists", "catalog"]
    user_column: str | None = None
    product_column: str | None = None
    account_column: str | None = None
    list_key: str | None = None
    event: str | None = None
    event_column: str | None = None
    time_column: str | None = None
    id_column: str | None = None
    columns: dict[str, str] | None = None
    delimiter: str = ","
    max_rejects: int = DEFAULT_MAX_REJECTS
    jdbc: JdbcSource | None = None
    iceberg: IcebergSource | None = None
    schedule: str | None = None
    timezone: str | None = None

    @property
    def source(self) -> JdbcSource | IcebergSource | None:
        """Return how a database or a table is read, which an import reads again and again; None: files, which it reads once."""
        return (self.iceberg or IcebergSource()) if self.format == "iceberg" else self.jdbc

    def with_deletions(self, deletions: str | None) -> "ImportRequest":
        """Return the request of a run with deletions of its own; None: those of the request."""
        if deletions is None or self.source is None:
            return self
        source = msgspec.structs.replace(self.source, deletions=deletions)
        return msgspec.structs.replace(self, **{self.format: source})

    def finds_deletions(self) -> bool:
        """Return whether rows that are gone have an effect."""
        source = self.source
        return source is not None and self.kind in FIND_DELETIONS and source.mode == "full" and source.deletions != "none"

    def named(self) -> list[str]:
        """Return the columns that the files or the rows of the database must have, without repetition."""
        own = () if self.source is None else self.source.columns()
        return list(dict.fromkeys((*self.roles(), *(self.columns or ()), *own)))

    def read(self) -> list[str] | None:
        """Return the columns to read; None: all of them."""
        return None if self.columns is None and self.kind != "lists" else self.named()

    def roles(self) -> tuple[str, ...]:
        """Return the columns that have a use of their own, and are no field by default."""
        used = (self.user_column, self.product_column, self.account_column, self.event_column, self.time_column, self.id_column)
        return tuple(column for column in used if column is not None)


class ImportSchedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A new schedule of an import of a database or a table; `schedule` None: no further run by time."""

    schedule: str | None
    timezone: str | None = None


class ImportState(NamedTuple):
    """The state of an import, and its schedule. `due_after_ms`: earlier times of the schedule are past, and lead to no run."""

    workspace: str
    key: str
    state: str
    schedule: str | None = None
    timezone: str | None = None
    due_after_ms: int | None = None


def next_time_ms(one: ImportState, after_ms: int) -> int | None:
    """Return the first time of the schedule after an instant. Units: epoch ms.

    None without a schedule, and once the import was cancelled.
    """
    if one.schedule is None or one.timezone is None or one.state == CANCELLED:
        return None
    return next_run_ms(one.schedule, one.timezone, after_ms)


def is_due(one: ImportState, now_ms: int) -> bool:
    """Return whether to run an import now, by its schedule.

    Times that passed while a run waited or ran, or while no process looked, lead to one run together.
    """
    if one.state not in ENDED or one.due_after_ms is None:
        return False
    next_ms = next_time_ms(one, one.due_after_ms)
    return next_ms is not None and next_ms <= now_ms


class Invalid(NamedTuple):
    """A document that is no import. `errors`: all of them, in the order of the fields, at least one."""

    errors: tuple[FieldError, ...]


_SOURCES: Final[Mapping[str, type[JdbcSource | IcebergSource]]] = {"jdbc": JdbcSource, "iceberg": IcebergSource}


def parse_request(document: Any) -> Done[ImportRequest] | Invalid:
    """Return the import of a JSON document, or all its errors. No error contains a password."""
    if not isinstance(document, Mapping):
        return Invalid((FieldError("", "bad_import", "it is no object", "send an object with the fields of an import"),))
    errors: list[FieldError] = []
    values = _typed("", ImportRequest, document, errors)
    for name, kind in _SOURCES.items():
        if isinstance(source := document.get(name), Mapping):
            before = len(errors)
            inner = _typed(f"/{name}", kind, source, errors)
            values[name] = kind(**inner) if len(errors) == before else None
    wrong = {one.pointer.split("/")[1] for one in errors}
    defaults = dict.fromkeys(ImportRequest.__struct_fields__) | {"delimiter": ",", "max_rejects": 0}
    errors += [one for fields, check in _CHECKS if not fields & wrong for one in check(SimpleNamespace(**{**defaults, **values}))]
    if errors:
        order = ("", *ImportRequest.__struct_fields__)
        return Invalid(tuple(sorted(errors, key=lambda one: _rank(order, one.pointer))))
    return Done(ImportRequest(**values))


def parse_schedule(document: Any) -> Done[ImportSchedule] | Invalid:
    """Return the schedule of a JSON document, or all its errors."""
    if not isinstance(document, Mapping):
        return Invalid((FieldError("", "bad_schedule", "it is no object", 'send {"schedule": "15 * * * *"}'),))
    errors: list[FieldError] = []
    values = _typed("", ImportSchedule, document, errors)
    if not errors:
        errors += _schedule(SimpleNamespace(**{"format": "jdbc", "timezone": None, **values}))
    return Invalid(tuple(errors)) if errors else Done(ImportSchedule(**values))


def _rank(order: tuple[str, ...], pointer: str) -> int:
    name = pointer.split("/")[1] if pointer else ""
    return order.index(name) if name in order else len(order)


def _typed(place: str, kind: type[msgspec.Struct], document: Mapping[str, Any], errors: list[FieldError]) -> dict[str, Any]:
    """Return the fields that have the right type, and add an error for each other one. An object of a source is left out."""
    known = {field.name: field for field in msgspec.structs.fields(kind)}
    values: dict[str, Any] = {}
    for name, field in known.items():
        if name not in document:
            if field.required:
                errors.append(FieldError(f"{place}/{name}", "bad_import", "it is missing", "add it; /docs lists the fields"))
        elif not (name in _SOURCES and isinstance(document[name], Mapping)):
            try:
                values[name] = msgspec.convert(document[name], field.type)
            except msgspec.ValidationError as error:
                # The message names types, and for a choice the value, which is none of a password.
                reason = str(error).partition(" - at `$")[0]
                errors.append(FieldError(f"{place}/{name}", "bad_import", f"{reason[:1].lower()}{reason[1:]}", "see /docs"))
    for name in document:
        if name not in known:
            shown = str(name)[:_SHOWN].replace("~", "~0").replace("/", "~1")
            errors.append(FieldError(f"{place}/{shown}", "bad_import", "there is no such field", f"one of {', '.join(known)}"))
    return values


def uri_error(uri: str) -> Refused | None:
    """Return the error of a URI without a known scheme, a bucket or a plain absolute path; None if it is valid."""
    scheme, separator, rest = uri.partition("://")
    if not separator or scheme not in _SCHEMES:
        known = ", ".join(f"{one}://" for one in _SCHEMES)
        return Refused("bad_uri", f"/uri: {uri[:200]!r} has no known scheme: begin it with one of {known}")
    bucket, _, path = rest.partition("/")
    shown = repr(uri[:200])
    checks = (
        (scheme != "file" or rest.startswith("/"), f"{shown} has no absolute path: write file:///directory/file"),
        (scheme == "file" or bucket != "", f"{shown} has no bucket: write {scheme}://bucket/path"),
        (path.strip("/") != "", f"{shown} has no path: add the path of a file or of a directory"),
        (not {"?", "#"} & set(rest), f"{shown} has a ? or a #: write it without a query, and those of a name as %3F and %23"),
        (".." not in _decoded_parts(path), f"{shown} has the part '..': write the path without it"),
    )
    return next((Refused("bad_uri", f"/uri: {message}") for is_valid, message in checks if not is_valid), None)


def _decoded_parts(path: str) -> list[str]:
    return path.lower().replace("%2e", ".").replace("%2f", "/").split("/")


Given: TypeAlias = Any
"""The fields of an import with their types; None where one is missing."""


def _key(given: Given) -> Iterator[FieldError]:
    if _KEY.fullmatch(given.key) is None:
        yield FieldError("/key", "bad_key", "it is no key", "begin with a small letter, then small letters, digits, _, -")


def _uri(given: Given) -> Iterator[FieldError]:
    if given.format in _SOURCES:
        address = jdbc_address(given.uri) if given.format == "jdbc" else iceberg_table(given.uri)
        if isinstance(address, SourceError):
            yield FieldError("/uri", address.code, address.reason, address.cure)
    elif (error := uri_error(given.uri)) is not None:
        reason, _, cure = error.message.removeprefix("/uri: ").rpartition(": ")
        yield FieldError("/uri", error.code, reason, cure)


def _user_column(given: Given) -> Iterator[FieldError]:
    if given.kind == "catalog":
        if given.user_column is not None:
            yield FieldError("/user_column", "unexpected_column", "a product has no user", "remove it")
    elif not given.user_column:
        yield FieldError("/user_column", "missing_column", "it is missing or empty", "name the column with the user ids")


def _product_column(given: Given) -> Iterator[FieldError]:
    if given.kind == "catalog" and not given.product_column:
        reason = "an import of the catalog needs it"
        yield FieldError("/product_column", "missing_column", reason, "name the column with the product ids")
    if given.kind != "catalog" and given.product_column is not None:
        reason = f"an import of {given.kind} has none"
        yield FieldError("/product_column", "unexpected_column", reason, "remove it, or write the kind catalog")


def _own_id(given: Given) -> Iterator[FieldError]:
    # A user or a product whose row has another id would else be sent and be gone in one run.
    if given.kind == "lists" and given.id_column and given.id_column != given.user_column:
        yield FieldError("/id_column", "unexpected_column", "a row of a list is its user", "name the user_column")
    if given.kind == "catalog" and given.id_column and given.id_column != given.product_column:
        yield FieldError("/id_column", "unexpected_column", "a row of the catalog is its product", "name the product_column")
    if given.kind in {"lists", "catalog"} and given.time_column is not None:
        yield FieldError("/time_column", "unexpected_column", f"a row of {given.kind} has no time", "remove it")


def _account_column(given: Given) -> Iterator[FieldError]:
    if given.kind == "accounts" and not given.account_column:
        reason = "an import of accounts needs it"
        yield FieldError("/account_column", "missing_column", reason, "name the column with the account ids")
    if given.kind != "accounts" and given.account_column is not None:
        reason = f"an import of {given.kind} has none"
        yield FieldError("/account_column", "unexpected_column", reason, "remove it, or write the kind accounts")


def _list(given: Given) -> Iterator[FieldError]:
    if given.kind != "lists":
        if given.list_key is not None:
            reason = f"an import of {given.kind} has none"
            yield FieldError("/list_key", "unexpected_list", reason, "remove it, or write the kind lists")
        return
    if given.list_key is None or _KEY.fullmatch(given.list_key) is None:
        yield FieldError("/list_key", "missing_list", "an import of lists needs the key of one", "such as fair-2026")
    if given.columns is not None:
        yield FieldError("/columns", "unexpected_column", "a member of a list has no fields", "remove it")


def _event(given: Given) -> Iterator[FieldError]:
    names = (given.event, given.event_column)
    if given.kind == "events" and names.count(None) != 1:
        yield FieldError("/event", "missing_event", "an import of events has either event or event_column", "give one of them")
    if given.kind != "events" and names != (None, None):
        yield FieldError("/event", "unexpected_event", f"an import of {given.kind} has no event", "remove event and event_column")
    if given.event is not None and not given.event.strip():
        yield FieldError("/event", "missing_event", "it is blank", "give the event's name")


def _delimiter(given: Given) -> Iterator[FieldError]:
    if len(given.delimiter) != 1 or given.delimiter in '"\r\n':
        yield FieldError("/delimiter", "bad_delimiter", "it is not one character other than a quote or a line break", "such as ;")


def _max_rejects(given: Given) -> Iterator[FieldError]:
    if not 0 <= given.max_rejects <= MOST_REJECTS:
        yield FieldError("/max_rejects", "bad_max_rejects", f"it is not between 0 and {MOST_REJECTS}", "a number in this range")


def _columns(given: Given) -> Iterator[FieldError]:
    if given.kind == "lists":
        return
    wanted = _PREFIX.get(given.kind, "traits")
    targets: set[str] = set()
    for column, field in (given.columns or {}).items():
        pointer = f"/columns/{column.replace('~', '~0').replace('/', '~1')}"
        if _FIELD.fullmatch(field) is None or not field.startswith(f"{wanted}."):
            yield FieldError(pointer, "bad_field", f"{field!r} is no field", f"write {wanted}.NAME")
        elif given.kind == "catalog" and field.partition(".")[2] not in PRODUCT_FIELDS:
            known = ", ".join(f"product.{name}" for name in PRODUCT_FIELDS)
            yield FieldError(pointer, "bad_field", f"a product has no field {field!r}", f"one of {known}")
        elif field in targets:
            yield FieldError(pointer, "bad_field", f"another column has the field {field!r} too", "give it another name")
        targets.add(field)


def _source(given: Given) -> Iterator[FieldError]:
    for name in _SOURCES:
        if name != given.format and getattr(given, name) is not None:
            reason = f"an import of the format {given.format} has none"
            yield FieldError(f"/{name}", f"unexpected_{name}", reason, f"remove it, or write the format {name}")
    if given.format == "jdbc":
        if given.jdbc is None:
            yield FieldError("/jdbc", "missing_jdbc", "the format jdbc needs it", "give user, password, and table or query")
            return
        yield from _of_source(given, given.jdbc, source_errors(given.jdbc))
    elif given.format == "iceberg" and given.iceberg is not None:
        yield from _of_source(given, given.iceberg, iceberg_errors(given.iceberg))


def _of_source(given: Given, source: JdbcSource | IcebergSource, errors: list[SourceError]) -> Iterator[FieldError]:
    yield from (FieldError(f"/{one.field}", one.code, one.reason, one.cure) for one in errors)
    if source.deletions == "any" and (given.kind not in FIND_DELETIONS or source.mode != "full"):
        reason = "only the kinds traits, lists and catalog with the mode full find deletions"
        if given.kind == "accounts":
            reason = "a group call also assigns its user to the account, so accounts that are gone keep their traits"
        yield FieldError(f"/{given.format}/deletions", "unexpected_deletions", reason, "remove it")


def _id_column(given: Given) -> Iterator[FieldError]:
    if given.format in _SOURCES and not given.id_column:
        # Rows of a database or a table have no order and no number, by which a repetition would find them.
        reason = f"the format {given.format} needs it"
        yield FieldError("/id_column", "missing_column", reason, "name a unique column, such as a key")


def _schedule(given: Given) -> Iterator[FieldError]:
    if given.schedule is None:
        if given.timezone is not None:
            yield FieldError("/timezone", "unexpected_timezone", "there is no schedule", "add one, or remove timezone")
        return
    if given.format not in _SOURCES:
        cure = "remove it, or write the format jdbc or iceberg"
        yield FieldError("/schedule", "unexpected_schedule", "files are imported once", cure)
    if (problem := schedule_error(given.schedule)) is not None:
        yield FieldError("/schedule", "bad_schedule", problem, _SCHEDULE_CURE)
    if given.timezone is not None and not is_timezone(given.timezone):
        yield FieldError("/timezone", "bad_timezone", "it is no time zone", "give an IANA name such as Europe/Berlin")


_CHECKS: Final[tuple[tuple[frozenset[str], Callable[[Given], Iterator[FieldError]]], ...]] = (
    (frozenset({"key"}), _key),
    (frozenset({"uri", "format"}), _uri),
    (frozenset({"user_column"}), _user_column),
    (frozenset({"kind", "product_column"}), _product_column),
    (frozenset({"kind", "user_column", "product_column", "time_column", "id_column"}), _own_id),
    (frozenset({"kind", "account_column"}), _account_column),
    (frozenset({"kind", "list_key", "columns"}), _list),
    (frozenset({"kind", "event", "event_column"}), _event),
    (frozenset({"format", "id_column"}), _id_column),
    (frozenset({"kind", "columns"}), _columns),
    (frozenset({"delimiter"}), _delimiter),
    (frozenset({"max_rejects"}), _max_rejects),
    (frozenset({"format", "kind", "jdbc", "iceberg"}), _source),
    (frozenset({"format", "schedule", "timezone"}), _schedule),
)
"""The fields that a check needs, and the check."""
