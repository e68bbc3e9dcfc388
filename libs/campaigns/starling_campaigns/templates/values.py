"""Pure core: the values that a template reads: JSON data, and missing values that know their path."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NoReturn

from jinja2 import Undefined

from starling_campaigns.bounds import MAX_ALL_ROUNDS, MAX_ROUNDS, MAX_TEXT_READ


class RenderingFailed(ValueError):
    """The template cannot be rendered with this data. `code`: `template_error`, `template_too_large` or `header_line_break`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Meter:
    """What one rendering has read and missed. `missing`: paths in the order of their use, each once."""

    __slots__ = ("_read", "_rounds", "missing")

    def __init__(self) -> None:
        self._read = 0
        self._rounds = 0
        self.missing: dict[str, None] = {}

    def read(self, characters: int) -> None:
        """Count characters that are read or made. Raises: RenderingFailed above the bound."""
        self._read += characters
        if self._read > MAX_TEXT_READ:
            raise RenderingFailed("template_too_large", f"the template reads over {MAX_TEXT_READ} characters of data")

    def rounds(self, values: Iterable[Any]) -> Iterator[Any]:
        """Yield the values, and count a round for each. Raises: RenderingFailed above the bound of all loops."""
        for value in values:
            self._rounds += 1
            if self._rounds > MAX_ALL_ROUNDS:
                raise RenderingFailed("template_too_large", f"the loops make over {MAX_ALL_ROUNDS} rounds")
            yield value


class Missing(Undefined):
    """A missing value. It is false, equals nothing and has no elements; a filter other than `default` returns it unchanged."""

    __slots__ = ("path",)

    def __init__(self, path: str = "", name: str | None = None, **_ignored: Any) -> None:
        self.path = path or name or ""
        super().__init__(name=self.path)

    def __str__(self) -> str:
        return ""

    def __bool__(self) -> bool:
        return False

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __contains__(self, _value: object) -> bool:
        return False

    def __eq__(self, _other: object) -> bool:
        return False

    def __ne__(self, _other: object) -> bool:
        return True

    def _never(self, _other: object) -> bool:
        return False

    __lt__ = __le__ = __gt__ = __ge__ = _never  # type: ignore[assignment] # a comparison is no error here

    __hash__ = None  # type: ignore[assignment]


class View:
    """An object or a list of the data. It is compared by identity, so that a comparison costs the same for all data."""

    __slots__ = ("data", "meter", "path")

    def __init__(self, path: str, data: Mapping[str, Any] | list[Any], meter: Meter) -> None:
        self.path = path
        self.data = data
        self.meter = meter

    def __bool__(self) -> bool:
        return bool(self.data)

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[Any]:
        """Yield the first elements of a list, or the first keys of an object."""
        if isinstance(self.data, list):
            return (self._wrapped(str(i), value) for i, value in enumerate(islice(self.data, MAX_ROUNDS)))
        return iter(tuple(islice(self.data, MAX_ROUNDS)))

    def __contains__(self, value: object) -> bool:
        """Return whether a scalar is one of the first elements or keys. `true` is not 1."""
        kind = type(value)
        return any(type(one) is kind and one == value for one in self)

    def get(self, name: object) -> Any:
        """Return the value of a field, or of a position of a list. A null is a missing value."""
        data = self.data
        if isinstance(data, list):
            found = data[name] if type(name) is int and -len(data) <= name < len(data) else None
        else:
            found = data.get(name) if isinstance(name, str) else None
        return self._wrapped(str(name), found)

    def __str__(self) -> NoReturn:
        kind = "a list" if isinstance(self.data, list) else "an object"
        raise RenderingFailed("template_error", f"{self.path} is {kind}, which has no text: use join, tojson, or one of its fields")

    def _wrapped(self, name: str, value: Any) -> Any:
        if type(value) is str:
            self.meter.read(len(value))
            return value
        if value is None:
            return Missing(f"{self.path}.{name}")
        return View(f"{self.path}.{name}", value, self.meter) if isinstance(value, dict | list) else value
