"""Pure core: the three results of processing one record. Invalid data is a result, not an exception."""

from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    """The record is processed; `value` is the result."""

    value: T


@dataclass(frozen=True, slots=True)
class Skipped:
    """A valid record without an effect, such as a duplicate. It is counted and not stored."""

    why: str


@dataclass(frozen=True, slots=True)
class Refused:
    """An invalid record, which goes to a dead-letter topic.

    `code` is stable and in snake_case; `message` names the place, the error and the cure.
    """

    code: str
    message: str


Outcome: TypeAlias = Done[T] | Skipped | Refused
