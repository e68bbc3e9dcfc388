"""Pure core: cursors and pages. A cursor is opaque to clients and valid only for its own list."""

import base64
import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from starling_api.http.errors import BadRequest
from starling_common.time.instants import parse_instant

T = TypeVar("T")

DEFAULT_LIMIT: Final = 100
MAX_LIMIT: Final = 1000


@dataclass(frozen=True, slots=True)
class PageOf:
    """The requested page: at most `limit` items after `cursor` (None: from the start)."""

    limit: int
    cursor: str | None

    def after(self, name: str, start: tuple[Any, ...], bits: tuple[int, ...] = (64,)) -> tuple[Any, ...]:
        """Return the position in the list `name`, with the types of `start`. `bits`: the size of its integers, in order.

        Raises: BadRequest (`bad_cursor`).
        """
        if self.cursor is None:
            return start
        try:
            raw = base64.urlsafe_b64decode(self.cursor.encode() + b"=" * (-len(self.cursor) % 4))
            found_name, *position = msgspec.json.decode(raw)
        except (ValueError, TypeError, binascii.Error, msgspec.DecodeError, RecursionError):
            found_name, position = None, []
        numbers = [part for part in position if isinstance(part, int)]
        fits = all(-(2 ** (size - 1)) <= number < 2 ** (size - 1) for number, size in zip(numbers, bits, strict=False))
        if found_name != name or not fits or [type(part) for part in position] != [type(part) for part in start]:
            raise BadRequest("bad_cursor", "cursor must be the next_cursor of an earlier page of the same list, unchanged")
        return tuple(position)


def instant_parameter(name: str, text: str) -> int:
    """Return the epoch milliseconds of a parameter. Raises: BadRequest (`bad_instant`)."""
    try:
        return parse_instant(text)
    except ValueError as error:
        raise BadRequest("bad_instant", f"{name}: {error}") from error


def make_cursor(name: str, position: tuple[Any, ...]) -> str:
    """Return the cursor of a position: the inverse of `PageOf.after`."""
    return base64.urlsafe_b64encode(msgspec.json.encode([name, *position])).decode().rstrip("=")


def cut(rows: Sequence[T], limit: int, name: str, position_of: Callable[[T], tuple[Any, ...]]) -> tuple[Sequence[T], str | None]:
    """Return the page and the cursor of the next one. `rows` has `limit` + 1 items if there is a next page."""
    if len(rows) <= limit:
        return rows, None
    page = rows[:limit]
    return page, make_cursor(name, position_of(page[-1]))
