"""Pure core: the description of an import. The API checks it, and the Spark job `imports` applies it."""

import re
from typing import Any, Final, Literal, TypeAlias

import msgspec

from starling_common.outcome import Done, Refused

RUNNING: Final = "running"
WAITING: Final = "waiting"
DONE: Final = "done"
FAILED: Final = "failed"
CANCELLED: Final = "cancelled"
ENDED: Final = frozenset({DONE, FAILED, CANCELLED})

State: TypeAlias = Literal["waiting", "running", "done", "failed", "cancelled"]

DEFAULT_MAX_REJECTS: Final = 10_000
MOST_REJECTS: Final = 1_000_000
_SCHEMES: Final = ("file", "s3", "s3a", "gs")
_KEY: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_FIELD: Final = re.compile(r"(properties|traits)\.[^.]+")


class ImportRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """One import. `columns`: the field of each column, such as `properties.revenue`; None: every column that has no other use.

    An event has `event` or `event_column`. `id_column`: its text identifies the row in all files of the import.
    """

    key: str
    uri: str
    format: Literal["csv", "parquet", "jsonl"]
    kind: Literal["events", "traits"]
    user_column: str
    event: str | None = None
    event_column: str | None = None
    time_column: str | None = None
    id_column: str | None = None
    columns: dict[str, str] | None = None
    delimiter: str = ","
    max_rejects: int = DEFAULT_MAX_REJECTS

    def named(self) -> list[str]:
        """Return the columns that the files must have, without repetition."""
        used = (self.user_column, self.event_column, self.time_column, self.id_column, *(self.columns or ()))
        return list(dict.fromkeys(column for column in used if column is not None))


def parse_request(document: Any) -> Done[ImportRequest] | Refused:
    """Return the import of a JSON document, or its first error: the place, the reason and the cure."""
    try:
        request = msgspec.convert(document, ImportRequest)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        place = "/" + path.strip("`.").replace(".", "/") if path else "the body"
        return Refused("bad_import", f"{place}: {problem[:1].lower()}{problem[1:]}: see the fields of an import in /docs")
    return _error(request) or uri_error(request.uri) or Done(request)


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


def _error(request: ImportRequest) -> Refused | None:
    is_events, names = request.kind == "events", (request.event, request.event_column)
    checks = (
        (_KEY.fullmatch(request.key) is not None, "bad_key", "/key: begins with a small letter, then small letters, digits, _, -"),
        (request.user_column != "", "missing_column", "/user_column: is empty: name the column with the user ids"),
        (
            not is_events or names.count(None) == 1,
            "missing_event",
            "/event: an import of events has either event or event_column: give one of them",
        ),
        (
            is_events or names == (None, None),
            "unexpected_event",
            "/event: an import of traits has no event: remove event and event_column",
        ),
        (request.event is None or request.event.strip() != "", "missing_event", "/event: is blank: give the event's name"),
        (
            len(request.delimiter) == 1 and request.delimiter not in '"\r\n',
            "bad_delimiter",
            "/delimiter: is not one character other than a quote or a line break: give one, such as ;",
        ),
        (
            0 <= request.max_rejects <= MOST_REJECTS,
            "bad_max_rejects",
            f"/max_rejects: is not between 0 and {MOST_REJECTS}: give a number in this range",
        ),
    )
    failed = next((Refused(code, message) for is_valid, code, message in checks if not is_valid), None)
    return failed or _columns_error(request)


def _columns_error(request: ImportRequest) -> Refused | None:
    wanted = "properties" if request.kind == "events" else "traits"
    targets: set[str] = set()
    for column, field in (request.columns or {}).items():
        if _FIELD.fullmatch(field) is None or not field.startswith(f"{wanted}."):
            return Refused("bad_field", f"/columns/{column}: {field!r} is no field: write {wanted}.NAME")
        if field in targets:
            return Refused("bad_field", f"/columns/{column}: another column has the field {field!r} too: give it another name")
        targets.add(field)
    return None
