"""Pure core: a record that makes the code raise is refused. No failure of it may end the process."""

from collections.abc import Callable
from typing import TypeVar

from starling_common.failures import is_of_installation, poison
from starling_common.outcome import Refused
from starling_common.wire import DecodeError

T = TypeVar("T")


def tried_twice(read: Callable[[], T]) -> T | Refused:
    """Return the result, or the refusal of a record that cannot be read. Raises: failures of the installation."""
    try:
        return _read(read)
    except Exception as first:
        if is_of_installation(first):
            raise
    try:
        return _read(read)
    except Exception as second:
        if is_of_installation(second):
            raise
        return poison(second)


def _read(read: Callable[[], T]) -> T | Refused:
    try:
        return read()
    except DecodeError as error:
        return Refused(error.code, str(error))
