"""Pure core: a row of a file -> an item of the ingest API, or the reason why the row is rejected."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final, NamedTuple

from starling_common.time.instants import LATEST_MS, parse_instant
from starling_common.values import MAX_ID_BYTES, deterministic_id, is_longer
from starling_rules.imports import PRODUCT_FIELDS, ImportRequest

_sorted_json: Final = json.JSONEncoder(sort_keys=True, ensure_ascii=False).encode
_NUMBER_STARTS: Final = frozenset("-0123456789 \t\n\r")
"""The characters with which JSON may begin that is a number. Most cells begin with another one."""
_BOOLEANS: Final = {"true": True, "false": False}
_TYPES: Final = {"events": "track", "traits": "identify", "accounts": "group"}
_AS_THEY_ARE: Final = frozenset({int, bool, type(None)})
"""The types whose values are those of JSON."""
_CURE: Final = "give each row one"
_ACCOUNT_CURE: Final = "name a user of the account: a group call has one"
_SHOWN: Final = 60
"""Most characters of a value in a message."""


class RejectedRow(NamedTuple):
    """Why a row is rejected. `row`: 1 for the first row of data. `column`: "" if the whole row is meant.

    `key`: the text of the id column, if it can be read.
    """

    row: int
    column: str
    code: str
    reason: str
    cure: str
    key: str | None = None


class ImportedRow(NamedTuple):
    """A row as an item of the ingest API, as a user with `onList`, or as a product id with its `product`.

    `number`: 1 for the first row of data; `key`: the text of the id column, else None.
    """

    number: int
    item: dict[str, Any]
    key: str | None


class UnusableFile(Exception):
    """A file that cannot be imported, or no further. The text names the place, the reason and the cure."""


class _Invalid(Exception):
    """A row that is rejected. The arguments are those of `RejectedRow` after the row."""


class _BadValue(Exception):
    """A value that cannot be imported. The text is the reason and the cure."""


def check_columns(request: ImportRequest, found: Sequence[str], source: str = "the file, which has") -> None:
    """Raise UnusableFile if a column of the import is missing, or occurs twice. `source`: what to correct, for the message."""
    if twice := sorted({column for column in found if list(found).count(column) > 1}):
        raise UnusableFile(f"the column {twice[0]!r} occurs twice: give each column its own name")
    if not all(_is_utf8(column) for column in found):
        raise UnusableFile("the names of the columns are not UTF-8: convert the file to UTF-8, such as by iconv -f latin1 -t utf-8")
    if missing := [column for column in request.named() if column not in found]:
        known = ", ".join(repr(column) for column in list(found)[:30])
        raise UnusableFile(f"there is no column {missing[0]!r}: correct the import, or {source} {known}")


class RowMapper:
    """Maps the rows of one file. `file`: the name of the file within the import; `sets_ids`: items have message ids."""

    def __init__(self, request: ImportRequest, workspace: str, file: str, *, sets_ids: bool = True) -> None:
        self._request = request
        self._workspace = workspace
        self._file = file
        self._sets_ids = sets_ids
        self._field = "properties" if request.kind == "events" else "traits"
        self._used = set(request.roles())
        self._is_catalog = request.kind == "catalog"
        self._chosen: list[tuple[str, str]] | None = None
        if request.kind == "lists":
            self._chosen = []
        elif request.columns is not None:
            self._chosen = [(column, field.partition(".")[2]) for column, field in request.columns.items()]
        self._names: set[str] = set()

    @property
    def id_column(self) -> str | None:
        """Return the column that identifies a row."""
        return self._request.id_column

    def map(self, number: int, values: Mapping[str, Any]) -> ImportedRow | RejectedRow:
        """Return the item of a row; a message id is the same for each run. Shape: `values` by column."""
        fields = {}
        try:
            item, key = self._head(values)
            for column, name in self._columns(values) if self._chosen is None else self._chosen:
                value = values.get(column)
                # Hot: most values need no conversion.
                if self._is_catalog or not (
                    type(value) in _AS_THEY_ARE
                    or (type(value) is str and value.isascii())
                    or (type(value) is float and math.isfinite(value))
                ):
                    value = _of_column(column, self._converter(name), values)
                if value is not None:
                    if name not in self._names:
                        self._names.add(_of_column(column, _utf8, {column: name}))
                    fields[name] = value
        except _Invalid as error:
            return RejectedRow(number, *error.args)._replace(key=self._key(values))
        if self._request.kind == "lists":
            item["onList"] = True
        elif self._request.kind == "catalog":
            item["product"] = fields
        else:
            item[self._field] = fields
        if self._sets_ids:
            item["messageId"] = self._message_id(number, item, key)
        return ImportedRow(number, item, key)

    def _converter(self, field: str) -> Callable[[Any], Any]:
        if self._request.kind != "catalog":
            return _json
        return _price if field == "price" else _name

    def _head(self, values: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
        """Return the item without its fields, and the text of the id column. Raises: _Invalid."""
        request = self._request
        item: dict[str, Any] = {"type": _TYPES[request.kind]} if request.kind in _TYPES else {}
        if request.user_column is not None:
            cure = _ACCOUNT_CURE if request.kind == "accounts" else _CURE
            item["userId"] = _id(request.user_column, values, "missing_id", "user id", cure)
        if request.product_column is not None:
            item["productId"] = _id(request.product_column, values, "missing_product", "product id")
        if request.account_column is not None:
            item["groupId"] = _id(request.account_column, values, "missing_account", "account id")
        if request.event_column is not None:
            item["event"] = _required(request.event_column, values, "missing_event", "event's name")
        elif request.event is not None:
            item["event"] = request.event
        if request.time_column is not None:
            item["timestamp"] = _of_column(request.time_column, _instant, values)
        return item, None if request.id_column is None else _required(request.id_column, values, "missing_key", "id of the row")

    def _key(self, values: Mapping[str, Any]) -> str | None:
        """Return the text of the id column; None without a readable one."""
        try:
            return None if self._request.id_column is None else _text(values.get(self._request.id_column)) or None
        except _BadValue:
            return None

    def _columns(self, values: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return the columns, and the names of their fields, of an import that names none."""
        columns = PRODUCT_FIELDS if self._request.kind == "catalog" else values
        return [(column, column) for column in columns if column in values and column not in self._used]

    def _message_id(self, number: int, item: Mapping[str, Any], key: str | None) -> str:
        place = ("import", self._workspace, self._request.key)
        if key is not None:
            return deterministic_id(*place, "key", key)
        # With the content, so that a corrected row of the same file is imported.
        return deterministic_id(*place, self._file, number, _sorted_json(item))


def value_of_cell(cell: str) -> Any:
    """Return a cell as a JSON number or boolean, other text unchanged (also `007` and `1e400`), or None for an empty cell."""
    if cell == "":
        return None
    if cell in _BOOLEANS:
        return _BOOLEANS[cell]
    if cell[0] not in _NUMBER_STARTS:
        return cell
    try:
        found = json.loads(cell)
    except (ValueError, RecursionError):
        return cell
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        return cell
    return found


def _of_column(column: str, convert: Callable[[Any], Any], values: Mapping[str, Any]) -> Any:
    """Return the converted value of a column. Raises: _Invalid."""
    try:
        return convert(values.get(column))
    except RecursionError as error:
        raise _Invalid(column, "too_deep", "the value is nested too deeply", "store a flatter value") from error
    except _BadValue as error:
        reason, _, cure = str(error).rpartition(": ")
        raise _Invalid(column, "bad_value", reason, cure) from error


def _id(column: str, values: Mapping[str, Any], code: str, what: str, cure: str = _CURE) -> str:
    """Return an id. Raises: _Invalid if there is none, or a long one."""
    found = _required(column, values, code, what, cure)
    if is_longer(found, MAX_ID_BYTES):
        raise _Invalid(column, "id_too_long", f"the {what} has over {MAX_ID_BYTES} bytes of UTF-8", "import a hash of it")
    return found


def _required(column: str, values: Mapping[str, Any], code: str, what: str, cure: str = _CURE) -> str:
    """Return the text of a column. Raises: _Invalid if there is none."""
    value = values.get(column)
    # Hot: nearly all ids are such.
    text: str = value if type(value) is str and value.isascii() else _of_column(column, _text, values)
    if not text.strip():
        raise _Invalid(column, code, f"the {what} is missing or blank", cure)
    return text


def _text(value: Any) -> str:
    """Return an id or a name as text. Raises: _BadValue."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise _BadValue(f"{_shown(value)} is no text and no whole number: store ids and names as text")
    return _utf8(value) if isinstance(value, str) else str(value)


def _name(value: Any) -> str | None:
    """Return a text of a product; None for an empty one. Raises: _BadValue."""
    return _text(value) or None


def _price(value: Any) -> float | None:
    """Return a price; None for an empty one. Raises: _BadValue."""
    if value is None or value == "":
        return None
    try:
        # `float` reads 1_000 too.
        number = math.nan if isinstance(value, bool) or "_" in str(value) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise _BadValue(f"{_shown(value)} is no price: write a number with a point, such as 12.5")
    return number


def _instant(value: Any) -> str:
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).isoformat()
    if isinstance(value, date):
        return f"{value.isoformat()}T00:00:00Z"
    if not isinstance(value, str) or not value:
        raise _BadValue(f"{_shown(value)} is no time: write it in ISO 8601, such as 2024-02-29T12:00:00Z")
    try:
        instant = parse_instant(value)
    except ValueError as error:
        raise _BadValue(f"{_shown(value)} is no time: write it in ISO 8601, such as 2024-02-29T12:00:00Z") from error
    if not 0 <= instant <= LATEST_MS:
        raise _BadValue(f"{_shown(value)} is not between the years 1970 and 9999: correct the time")
    return value


def _json(value: Any) -> Any:
    """Return a value of a file as a value of JSON. Raises: _BadValue."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return _utf8(value)
    if isinstance(value, float | Decimal):
        number = float(value)
        if not math.isfinite(number):
            raise _BadValue(f"{_shown(value)} is no number of JSON: store null instead")
        return number
    if isinstance(value, datetime | date):
        return _instant(value)
    if isinstance(value, dict):
        return {_utf8(str(name)): _json(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_json(one) for one in value]
    raise _BadValue(f"a value of the type {type(value).__name__} has no form in JSON: convert the column to text")


def _utf8(text: str) -> str:
    if not _is_utf8(text):
        raise _BadValue("the text is not UTF-8: convert the file to UTF-8, such as by iconv -f latin1 -t utf-8")
    return text


def _is_utf8(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(value: Any) -> str:
    # `ascii`, because the text may have bytes that are not UTF-8.
    return ascii(value)[:_SHOWN] if value is not None else "nothing"
