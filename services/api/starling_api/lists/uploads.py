"""Core: streams the user ids of an uploaded file: JSON (`{"users": [ids]}`), or CSV with one id in each row."""

import csv
import io
import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import IO, Final, TypeAlias

import ijson
import ijson.backends.python as ijson_python

from starling_api.http.errors import BadRequest, TooLarge
from starling_segments import DefinitionRefused, FieldError

MAX_IDS: Final = 1_000_000
MAX_ID_BYTES: Final = 1024
_MAX_ERRORS: Final = 20
_READ_BYTES: Final = 65_536
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
"""The escape of a half of a surrogate pair."""

Event: TypeAlias = tuple[str, object]
"""What the JSON parser found, and its value."""

_EXPECTED: Final = f"a user id: text of 1 to {MAX_ID_BYTES} bytes"


def count_ids(file: IO[bytes], *, as_csv: bool) -> int:
    """Return the number of ids. Raises: DefinitionRefused with the first errors, BadRequest (`not_json`, `not_csv`), TooLarge."""
    found = 0
    errors: list[FieldError] = []
    for found, (pointer, value) in enumerate(_values(file, as_csv=as_csv), start=1):
        if found > MAX_IDS:
            raise TooLarge(f"an upload has at most {MAX_IDS} ids: send the rest with another request")
        if not _is_id(value):
            errors.append(FieldError(pointer, "wrong_type", "it is not a user id", _EXPECTED))
            if len(errors) == _MAX_ERRORS:
                break
    if errors:
        raise DefinitionRefused(tuple(errors))
    return found


def read_ids(file: IO[bytes], *, as_csv: bool) -> Iterator[str]:
    """Return the ids of a file that `count_ids` has validated."""
    for _, value in _values(file, as_csv=as_csv):
        assert isinstance(value, str)  # noqa: S101 - `count_ids` has validated the file
        yield value


def _values(file: IO[bytes], *, as_csv: bool) -> Iterator[tuple[str, object]]:
    """Return (pointer, value) pairs. The pointer is a JSON pointer, or the number of the CSV row, counted from 1."""
    if not as_csv:
        yield from ((f"/users/{index}", value) for index, value in enumerate(json_users(file)))
        return
    file.seek(0)
    # Rows are decoded in blocks. Surrogates stand for bytes that are not UTF-8, so that the error names their row.
    text = io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline="")
    try:
        yield from _csv_values(text)
    finally:
        text.detach()  # the caller closes the file


def json_users(file: IO[bytes]) -> Iterator[object]:
    """Yield the values of `users` in `{"users": [ids]}`, an object or a list among them as None. The file need not fit into memory.

    Raises: BadRequest (`not_json`), DefinitionRefused (another shape).
    """
    # The parser in C replaces half of a surrogate pair by another character; the parser in Python, 20 times slower, returns it.
    parser = ijson_python if _has_surrogate(file) else ijson
    file.seek(0)
    file.seek(len(BOM_UTF8) if file.read(len(BOM_UTF8)) == BOM_UTF8 else 0)
    yield from _users(_events(parser.basic_parse(file)))


def _events(parsed: Iterator[Event]) -> Iterator[Event]:
    try:
        yield from parsed
    except (ijson.JSONError, ValueError, ArithmeticError) as cause:  # a number with more digits than a decimal can have
        raise _not_json(" ".join(str(cause).split())) from cause


def _has_surrogate(file: IO[bytes]) -> bool:
    file.seek(0)
    read = b""
    while block := file.read(_READ_BYTES):
        read = read[-5:] + block
        if _SURROGATE.search(read):
            return True
    return False


def _users(events: Iterator[Event]) -> Iterator[object]:
    if next(events)[0] != "start_map":
        raise _refused("", "wrong_type", "it is not an object")
    if next(events) != ("map_key", "users"):
        raise _refused("", "missing_field", 'its first field is not "users"')
    if next(events)[0] != "start_array":
        raise _refused("/users", "wrong_type", "it is not a list")
    depth = 1
    for event, value in events:
        if event.startswith("start_"):
            depth += 1
        elif event.startswith("end_"):
            depth -= 1
            if depth == 0:
                break
            if depth == 1:
                yield None
        elif depth == 1:
            yield value
    if next(events)[0] != "end_map":
        raise _not_json("it has another field than users")
    for _ in events:  # raises on what follows the object
        pass


def _csv_values(text: IO[str]) -> Iterator[tuple[str, object]]:
    rows = csv.reader(text, strict=True)
    try:
        for row in rows:
            if not all(map(_is_unicode, row)):
                raise BadRequest("not_csv", f"row {rows.line_num}: the body is not UTF-8")
            if row and row != [""]:
                yield f"row/{rows.line_num}", row[0].strip() if len(row) == 1 else None
    except csv.Error as cause:
        raise BadRequest("not_csv", f"row {rows.line_num}: the body is not CSV: {cause}") from cause


def _is_id(value: object) -> bool:
    return isinstance(value, str) and _is_unicode(value) and 0 < len(value.encode()) <= MAX_ID_BYTES


def _is_unicode(text: str) -> bool:
    """Return whether the text has no lone surrogate."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _not_json(why: str) -> BadRequest:
    return BadRequest("not_json", f"the body is not a JSON object with a list of users: {why}")


def _refused(pointer: str, code: str, what: str) -> DefinitionRefused:
    return DefinitionRefused((FieldError(pointer, code, what, 'an object with "users": a list of ids'),))
