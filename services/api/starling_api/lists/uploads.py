"""Core: the user ids of an uploaded file, one by one: JSON (`{"users": [ids]}`), or CSV with one id in each row."""

import csv
import io
import json
from collections.abc import Iterator
from typing import IO, Final

from starling_api.http.errors import BadRequest, TooLarge
from starling_segments import DefinitionRefused, FieldError

MAX_IDS: Final = 1_000_000
MAX_ID_BYTES: Final = 1024
_MOST_FAULTS: Final = 20
_READ_CHARACTERS: Final = 65_536
_SPACE: Final = " \t\r\n"
_EXPECTED: Final = f"a user id: text of 1 to {MAX_ID_BYTES} bytes"


def count_ids(file: IO[bytes], *, as_csv: bool) -> int:
    """How many there are. Raises: DefinitionRefused with the first faults, BadRequest (`not_json`, `not_csv`), TooLarge."""
    found = 0
    faults: list[FieldError] = []
    for found, (pointer, value) in enumerate(_values(file, as_csv=as_csv), start=1):
        if found > MAX_IDS:
            raise TooLarge(f"an upload has at most {MAX_IDS} ids: send the rest with another request")
        if not _is_id(value):
            faults.append(FieldError(pointer, "wrong_type", "it is not a user id", _EXPECTED))
            if len(faults) == _MOST_FAULTS:
                break
    if faults:
        raise DefinitionRefused(tuple(faults))
    return found


def read_ids(file: IO[bytes], *, as_csv: bool) -> Iterator[str]:
    """The ids of a file that `count_ids` has found good."""
    for _, value in _values(file, as_csv=as_csv):
        assert isinstance(value, str)  # noqa: S101 - the file was looked through before
        yield value


def _values(file: IO[bytes], *, as_csv: bool) -> Iterator[tuple[str, object]]:
    """Each value with its place in the file: a JSON pointer, or the row as editors count lines."""
    file.seek(0)
    # Rows are decoded in blocks: bytes that are not UTF-8 are kept as surrogates, so that the row with them can be named.
    text = io.TextIOWrapper(file, "utf-8-sig", "surrogateescape" if as_csv else "strict", newline="")
    try:
        if as_csv:
            yield from _csv_values(text)
        else:
            yield from ((f"/users/{place}", value) for place, value in enumerate(JsonUsers(text).values()))
    except UnicodeDecodeError as cause:
        raise BadRequest("not_json", f"the body is not UTF-8: {cause}") from cause
    finally:
        text.detach()  # the file is the caller's to close


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
    """Whether there is no half of a surrogate pair in it."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class JsonUsers:
    """Reads `{"users": [ids]}` piece by piece: the whole of it need not fit into memory."""

    def __init__(self, text: IO[str]) -> None:
        self._text = text
        self._buffer = ""
        self._at = 0
        self._decoder = json.JSONDecoder()

    def values(self) -> Iterator[object]:
        """What is in the array. Raises: BadRequest (`not_json`), DefinitionRefused (another shape)."""
        if self._peek() != "{":
            self._value()  # reports a body that is not JSON
            raise _refused("", "wrong_type", "it is not an object")
        self._at += 1
        name = self._value()
        if name != "users":
            raise _refused("", "missing_field", 'it has another field than "users"')
        self._expect(":")
        if self._peek() != "[":
            self._value()
            raise _refused("/users", "wrong_type", "it is not a list")
        self._at += 1
        yield from self._items()
        self._expect("}")
        if self._peek():
            raise self._broken("there is something after the end, or another field than users")

    def _items(self) -> Iterator[object]:
        if self._peek() == "]":
            self._at += 1
            return
        while True:
            yield self._value()
            if self._peek() == "]":
                self._at += 1
                return
            self._expect(",")

    def _peek(self) -> str:
        """The next character that counts; empty at the end."""
        while True:
            while self._at < len(self._buffer) and self._buffer[self._at] in _SPACE:
                self._at += 1
            if self._at < len(self._buffer):
                return self._buffer[self._at]
            if not self._more():
                return ""

    def _expect(self, character: str) -> None:
        if self._peek() != character:
            raise self._broken(f"expected {character!r}")
        self._at += 1

    def _value(self) -> object:
        """One JSON value; a number may be cut where the text read so far ends, but no number is an id anyway."""
        self._peek()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._buffer, self._at)
            except (ValueError, RecursionError) as cause:
                if len(self._buffer) - self._at > _READ_CHARACTERS or not self._more():
                    raise self._broken(str(cause)) from cause
                continue
            self._at = end
            return value

    def _more(self) -> bool:
        read = self._text.read(_READ_CHARACTERS)
        self._buffer, self._at = self._buffer[self._at :] + read, 0
        return bool(read)

    def _broken(self, why: str) -> BadRequest:
        return BadRequest("not_json", f"the body is not a JSON object with a list of users: {why}")


def _refused(pointer: str, code: str, what: str) -> DefinitionRefused:
    return DefinitionRefused((FieldError(pointer, code, what, 'an object with "users": a list of ids'),))
