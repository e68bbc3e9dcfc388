"""Pure core: the tree of a definition: frozen values without behaviour."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from starling_segments.language.operators.table import Comparison, NextChange, Test

T = TypeVar("T")
GroupKind: TypeAlias = Literal["all", "any", "none", "not"]
Source: TypeAlias = Literal["property", "context", "item"]
MeasureName: TypeAlias = Literal[
    "count",
    "sum",
    "avg",
    "min",
    "max",
    "first",
    "last",
    "distinct",
    "most_frequent",
    "percentile",
    "first_time",
    "last_time",
    "days",
]
Unit: TypeAlias = Literal["day", "week", "month", "year"]
Match: TypeAlias = Literal["any", "all", "none"]


@dataclass(frozen=True)
class Within:
    """`n - length_ms < t <= n`."""

    length_ms: int


@dataclass(frozen=True)
class Ago:
    """`n - older_ms < t <= n - newer_ms`."""

    older_ms: int
    newer_ms: int


@dataclass(frozen=True)
class Fixed:
    """`after_ms <= t < before_ms`, independent of the instant; None: unlimited on that side."""

    after_ms: int | None
    before_ms: int | None


@dataclass(frozen=True)
class Calendar:
    """The calendar period of `zone` that contains the instant, or (`back` 1) the previous one."""

    unit: Unit
    back: int
    zone: str


Window: TypeAlias = Within | Ago | Fixed | Calendar
"""None stands for a lifetime."""


@dataclass(frozen=True)
class Group(Generic[T]):
    """`not` has one part, the others 1 to 64."""

    kind: GroupKind
    parts: tuple[T, ...]


@dataclass(frozen=True)
class Predicate:
    """One operator with its operand, compiled.

    `operand` is canonical: JSON values, dates as epoch ms, so that equal predicates compare equal. `zone`: the timezone's name if
    the truth depends on it. `next_change` is set if time alone can change the truth.
    """

    op: str
    operand: Any
    zone: str | None
    ignore_case: bool
    holds: Test = field(compare=False, repr=False)
    next_change: NextChange | None = field(compare=False, repr=False, default=None)


@dataclass(frozen=True)
class Check:
    """A predicate on a value of an event, or of an array's item (`path` None: the item itself)."""

    source: Source
    path: str | None
    predicate: Predicate


@dataclass(frozen=True)
class TraitValue:
    """The user's trait at `path`, at the time when the event is folded."""

    path: str


@dataclass(frozen=True)
class StepValue:
    """The property at `path` of the event of an earlier step of the sequence."""

    step: int
    path: str


@dataclass(frozen=True)
class Compared:
    """An operator on a value of an event, compared with another value. `holds(value, other value, instant)`."""

    source: Source
    path: str
    op: str
    zone: str | None
    ignore_case: bool
    other: TraitValue | StepValue
    holds: Comparison = field(compare=False, repr=False)


Filter: TypeAlias = "Check | Compared | Group[Filter]"


@dataclass(frozen=True)
class EventSelector:
    """Events by name (`*` at the end: by prefix) and by content.

    A moving date predicate in `where` is evaluated at the event's own time.
    """

    name: str
    where: Filter | None = None


@dataclass(frozen=True)
class Measure:
    """A measure: of which events, of which property, in which window (None: lifetime).

    `q`: the rank of a `percentile`, as written. `zone`: the timezone whose days `days` counts.
    """

    event: EventSelector
    name: MeasureName = "count"
    path: str | None = None
    window: Window | None = None
    q: str | None = None
    zone: str | None = None


@dataclass(frozen=True)
class Ratio:
    """The quotient of two measures; missing if one is missing or the second is zero."""

    of: Measure
    to: Measure


@dataclass(frozen=True)
class Trait:
    """A predicate on a trait; `held_for_ms` and `held_less_than_ms`: limits of the time for which it has been true."""

    path: str
    predicate: Predicate
    held_for_ms: int | None = None
    held_less_than_ms: int | None = None


@dataclass(frozen=True)
class EventMeasure:
    """A predicate on an event measure."""

    measure: Measure | Ratio
    predicate: Predicate


@dataclass(frozen=True)
class FirstTime:
    """Tests whether the first match ever is inside the window (None: whether there is one)."""

    event: EventSelector
    window: Window | None = None


@dataclass(frozen=True)
class Step:
    """One step of a sequence: a match at most `within_ms` after the previous step, or (`negative`) no match.

    A negative step with `for_ms` completes that long after the previous step; one without forbids a match between its neighbours.
    """

    event: EventSelector
    negative: bool = False
    within_ms: int | None = None
    for_ms: int | None = None


@dataclass(frozen=True)
class Sequence:
    """Tests whether any chain of matches was completed inside the window (`within_ms` None: ever)."""

    steps: tuple[Step, ...]
    within_ms: int | None = None


@dataclass(frozen=True)
class Regularly:
    """Tests whether at least `at_least` of the last `of` periods of `every_ms` contain a match."""

    event: EventSelector
    every_ms: int
    at_least: int
    of: int


@dataclass(frozen=True)
class InSegment:
    """Membership of another segment."""

    key: str


@dataclass(frozen=True)
class Everyone:
    """Every known user."""


@dataclass(frozen=True)
class InList:
    """Membership of an uploaded list."""

    key: str


@dataclass(frozen=True)
class Bucket:
    """Tests whether a hash of `salt` and the user's id is in `[low, high)` per cent of all users."""

    salt: str
    low: float
    high: float


@dataclass(frozen=True)
class Account:
    """Tests whether any, all or none of the users of the user's account, the user included, fulfil the condition."""

    match: Match
    where: Condition


Leaf: TypeAlias = "Trait | EventMeasure | FirstTime | Sequence | Regularly | InSegment | InList | Bucket | Account | Everyone"
Condition: TypeAlias = "Leaf | Group[Condition]"


def leaves(condition: Condition) -> Iterator[Leaf]:
    """Iterate over the leaves depth first, in document order; those inside an account condition follow it."""
    if isinstance(condition, Group):
        for part in condition.parts:
            yield from leaves(part)
    else:
        yield condition
        if isinstance(condition, Account):
            yield from leaves(condition.where)


@dataclass(frozen=True)
class Segment:
    """A valid definition. `version` is set by the caller that stores it."""

    key: str
    name: str
    description: str
    timezone: str
    where: Condition
    version: int = 1

    @property
    def uses(self) -> frozenset[str]:
        """The keys of the segments that it uses."""
        return frozenset(leaf.key for leaf in leaves(self.where) if isinstance(leaf, InSegment))
