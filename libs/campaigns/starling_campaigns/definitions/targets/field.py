"""Pure core: what describes the fields of a target."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

MASK: Final = "***"
"""Replaces a secret in responses. In a body it keeps the stored value."""
SEALED: Final = "sealed:v1:"
"""The beginning of a stored secret, which is encrypted. Such a value was checked before its encryption."""

Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value. `is_valid` is the check; `schema` accepts every valid value; `expected` is the cure of an error."""

    is_valid: Callable[[Any], bool]
    schema: Schema
    expected: str


@dataclass(frozen=True, slots=True)
class TargetField:
    """One field of a target. `secret`: responses mask it. `fields`: those of an object, whose `kind` is None then.

    `each`: of an object with names that the user chooses: the field of each value, which is required; `kind` checks the names.
    `variants`: of an object whose first field selects the others: value of that field -> the names of the fields that go with it,
    each with whether it is required.
    """

    kind: Kind | None
    required: bool = True
    secret: bool = False
    fields: "Mapping[str, TargetField] | None" = None
    each: "TargetField | None" = None
    variants: Mapping[str, Mapping[str, bool]] | None = None

    @property
    def selector(self) -> str | None:
        """Return the name of the field that selects the others; None without `variants`."""
        return None if self.fields is None or self.variants is None else next(iter(self.fields))


def pattern(pattern: str, most: int, expected: str) -> Kind:
    """Return the kind of a text that a pattern matches whole. `most`: its maximum length in characters."""
    found = re.compile(pattern[:-1] + r"\Z")

    def is_valid(value: Any) -> bool:
        return isinstance(value, str) and 0 < len(value) <= most and found.match(value) is not None

    return Kind(is_valid, {"type": "string", "minLength": 1, "maxLength": most, "pattern": pattern}, expected)


def choice(*choices: str) -> Kind:
    """Return the kind of one of these texts."""
    return Kind(lambda value: isinstance(value, str) and value in choices, {"enum": [*choices]}, "one of " + ", ".join(choices))
