"""Pure core: a point at which a test makes a stage raise. Inactive unless the settings name one."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Self, TypeVar

T = TypeVar("T")

_PREFIX: Final = "raise_in_"
_ANY: Final = "any"
_ERRORS: Final[dict[str, type[Exception]]] = {"": ValueError, "world": OSError}


class Raising(NamedTuple):
    """`raise_in_process:TEXT` raises a ValueError at the point `process` for data that contains the text.

    With `raise_in_process:TEXT:world` it is an OSError, which is a failure of the installation. `raise_in_any:TEXT` raises at every
    point, each for data that contains the text followed by the name of the point.
    """

    point: str
    text: bytes
    error: type[Exception]

    @classmethod
    def of(cls, armed: str | None) -> Self | None:
        """Return the failpoint of a setting, a list with semicolons; None if it names no such failpoint.

        Raises: KeyError for an unknown error.
        """
        raising, _ = split(armed)
        if raising is None:
            return None
        point, text, *error = raising.removeprefix(_PREFIX).split(":")
        return cls(point, text.encode(), _ERRORS["".join(error)])

    def matches(self, point: str, data: bytes) -> bool:
        """Return whether this is the point and the data contains the text."""
        if self.point == _ANY:
            return self.text + point.encode() in data
        return point == self.point and self.text in data

    def before(self, point: str, decode: Callable[..., T]) -> Callable[..., T]:
        """Return a function that passes the point with its last argument, a value, first."""

        def passed(*given: Any) -> T:
            self.passed(point, given[-1])
            return decode(*given)

        return passed

    def passed(self, point: str, data: bytes) -> None:
        """Raise, if this is the point and the data contains the text."""
        if self.matches(point, data):
            raise self.error(f"failpoint {point}")


def split(armed: str | None) -> tuple[str | None, str | None]:
    """Return the two failpoints of a setting: the first raises, the second kills or suspends the process."""
    points = [] if armed is None else armed.split(";")
    raising = [point for point in points if point.startswith(_PREFIX)]
    ending = [point for point in points if not point.startswith(_PREFIX)]
    return next(iter(raising), None), next(iter(ending), None)
