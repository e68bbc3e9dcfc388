"""Pure core: what a step can say of one record. There is no fourth answer, and no exception for bad data."""

from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    """The record was good; `value` is what it became."""

    value: T


@dataclass(frozen=True, slots=True)
class Skipped:
    """A correct record with nothing to do, such as a duplicate. Counted, not kept."""

    why: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A record that can never be processed as it is; it goes to a dead-letter topic.

    `code` is stable and in snake_case; `message` names the place, what is wrong and what would be right.
    """

    code: str
    message: str


Outcome: TypeAlias = Done[T] | Skipped | Refused
