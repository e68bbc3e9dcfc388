"""Pure core: validation errors of a definition. All errors are collected, each with its location."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from zoneinfo import ZoneInfo

NOT_YET = "not_yet"
"""Code of a part of the language that this version does not support; the API answers 501."""

CODES = frozenset(
    {
        "unknown_field", "missing_field", "wrong_type", "unknown_operator", "operator_does_not_fit", "bad_duration", "bad_date",
        "bad_timezone", "bad_pattern", "bad_window", "empty_group", "too_deep", "too_wide", "unknown_segment", "unknown_list",
        "unknown_trait", "cycle", "bad_key", "key_taken", "out_of_range", "bad_text", "too_large", "too_costly",
        NOT_YET,
    }
)  # fmt: skip
UTC = ZoneInfo("UTC")
MAX_DEPTH = 16
MAX_LEAVES = 256


@dataclass(frozen=True, slots=True)
class FieldError:
    """One validation error. `pointer` is a JSON pointer (RFC 6901) into the document."""

    pointer: str
    code: str
    message: str
    expected: str


class DefinitionRefused(ValueError):
    """The document is not a valid definition. `errors`: all validation errors, in document order."""

    def __init__(self, errors: tuple[FieldError, ...]) -> None:
        super().__init__("; ".join(f"{error.pointer or '/'}: {error.message}" for error in errors))
        self.errors = errors

    @property
    def not_yet(self) -> bool:
        """Return whether all errors concern parts of the language that are not supported yet."""
        return all(error.code == NOT_YET for error in self.errors)


@dataclass(frozen=True, slots=True)
class CostLimits:
    """The limits of the worst-case cost of one definition (`parse/cost.py`).

    `work`: points an event; a point is about a microsecond. `state_bytes`: of one user.
    """

    work: int
    state_bytes: int


@dataclass(frozen=True)
class Known:
    """The workspace's names that a definition may refer to.

    `segments`: key of each segment that is not archived -> keys of the segments it uses. `computed_traits`: keys without the
    `computed.` prefix. `taken_keys`: keys that a new segment must not have. `lists`: keys of uploaded lists; None: lists are not
    supported. `accounts`: whether account conditions are supported. `timezone`: the workspace's default. `limits`: of the cost of a
    definition; None for definitions that are stored already.
    """

    segments: Mapping[str, frozenset[str]] = field(default_factory=dict)
    computed_traits: frozenset[str] = frozenset()
    taken_keys: frozenset[str] = frozenset()
    lists: frozenset[str] | None = None
    accounts: bool = False
    timezone: str = "UTC"
    limits: CostLimits | None = None


@dataclass(slots=True)
class Validation:
    """The progress of the validation of one document."""

    known: Known
    key: str | None = None
    zone: ZoneInfo = UTC
    errors: list[FieldError] = field(default_factory=list)
    leaves: int = 0
    in_account: bool = False


@dataclass(frozen=True, slots=True)
class Location:
    """A location in the document. `depth`: number of enclosing groups."""

    validation: Validation
    pointer: str = ""
    depth: int = 0

    def at(self, *steps: str | int) -> Location:
        """Return the location below this one."""
        tail = "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)
        return replace(self, pointer=self.pointer + tail)

    def inside_group(self) -> Location:
        """Return the same location with one more enclosing group."""
        return replace(self, depth=self.depth + 1)

    def refuse(self, code: str, message: str, expected: str) -> None:
        """Record a validation error at this location; the validation continues."""
        self.validation.errors.append(FieldError(self.pointer, code, message, expected))

    def count_condition(self) -> bool:
        """Count a condition, a predicate inside `where` included. Return False if the definition has too many."""
        self.validation.leaves += 1
        if self.validation.leaves == MAX_LEAVES + 1:
            self.refuse(
                "too_wide",
                f"the definition has more than {MAX_LEAVES} conditions",
                f"at most {MAX_LEAVES} conditions, those inside where included",
            )
        return self.validation.leaves <= MAX_LEAVES


def finish(validation: Validation) -> None:
    """Raise DefinitionRefused if the document has validation errors."""
    if validation.errors:
        raise DefinitionRefused(tuple(validation.errors))


def refuse_unknown_fields(node: Mapping[str, object], allowed: frozenset[str], location: Location) -> None:
    """Record an error for each field that is not allowed."""
    for name in node:
        if name not in allowed:
            location.at(name).refuse("unknown_field", f"unknown field {name!r}", "one of " + ", ".join(sorted(allowed)))
