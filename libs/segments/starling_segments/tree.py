"""Pure core: what a segment is: frozen values, and nothing that acts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from starling_segments.operators.table import NextChange, Test

T = TypeVar("T")
GroupKind: TypeAlias = Literal["all", "any", "none", "not"]
Source: TypeAlias = Literal["property", "context", "item"]
MeasureName: TypeAlias = Literal["count", "sum", "distinct"]


@dataclass(frozen=True)
class Group(Generic[T]):
    """`not` has one part, the others 1 to 64."""

    kind: GroupKind
    parts: tuple[T, ...]


@dataclass(frozen=True)
class Predicate:
    """One operator with its operand, ready to ask.

    `operand` is canonical: JSON values, dates as epoch ms, so that equal predicates compare equal. `zone` is the
    timezone's name where the truth depends on it. `next_change` is there when time alone can change the truth.
    """

    op: str
    operand: Any
    zone: str | None
    ignore_case: bool
    holds: Test = field(compare=False, repr=False)
    next_change: NextChange | None = field(compare=False, repr=False, default=None)


@dataclass(frozen=True)
class Check:
    """A predicate on one place of an event, or of an array's item (`path` None: the item itself)."""

    source: Source
    path: str | None
    predicate: Predicate


Filter: TypeAlias = "Check | Group[Filter]"


@dataclass(frozen=True)
class EventSelector:
    """Events by name (`*` at the end: by prefix) and by what is in them.

    A moving date predicate in `where` is judged at the event's own time.
    """

    name: str
    where: Filter | None = None


@dataclass(frozen=True)
class Measure:
    """What is counted: over which events, of which property, in which window (`within_ms` None: lifetime)."""

    event: EventSelector
    name: MeasureName = "count"
    path: str | None = None
    within_ms: int | None = None


@dataclass(frozen=True)
class Trait:
    """A predicate on a trait of the profile."""

    path: str
    predicate: Predicate


@dataclass(frozen=True)
class EventMeasure:
    """A predicate on an event measure."""

    measure: Measure
    predicate: Predicate


@dataclass(frozen=True)
class FirstTime:
    """The very first match ever lies inside the window (`within_ms` None: there is one)."""

    event: EventSelector
    within_ms: int | None = None


@dataclass(frozen=True)
class InSegment:
    """Is a member of that segment."""

    key: str


@dataclass(frozen=True)
class Everyone:
    """Every known profile."""


Leaf: TypeAlias = Trait | EventMeasure | FirstTime | InSegment | Everyone
Condition: TypeAlias = "Leaf | Group[Condition]"


def leaves(condition: Condition) -> Iterator[Leaf]:
    """Depth first, in document order."""
    if isinstance(condition, Group):
        for part in condition.parts:
            yield from leaves(part)
    else:
        yield condition


@dataclass(frozen=True)
class Segment:
    """A definition that was accepted. `version` is set by whoever stores it."""

    key: str
    name: str
    description: str
    timezone: str
    where: Condition
    version: int = 1

    @property
    def uses(self) -> frozenset[str]:
        """Keys of the segments it is built on."""
        return frozenset(leaf.key for leaf in leaves(self.where) if isinstance(leaf, InSegment))
