"""Pure core: the elements of a plan, and the membership changes that its evaluation returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import msgspec

from starling_segments.engine.explain import Node
from starling_segments.engine.state import UserState
from starling_segments.language.tree import Segment

Cause: TypeAlias = Literal["EVENT", "TIMER", "DEFINITION", "LIST"]
Status: TypeAlias = Literal["ENTERED", "EXITED"]


class Change(msgspec.Struct, frozen=True, gc=False):
    """One membership change. `effective_at`: epoch ms; `sequence`: odd for an entry, even for an exit."""

    segment_key: str
    segment_version: int
    status: Status
    sequence: int
    effective_at: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class CompiledSegment:
    """A segment of a plan. `holds(state, now)`: its truth; `dependents`: bit mask of the later segments that use it."""

    segment: Segment
    holds: Callable[[UserState, int], bool]
    tree: Node
    dependents: int


@dataclass(frozen=True, slots=True)
class CompiledAccount:
    """A condition on the users of an account. `holds(state, now)`: this user's answer; `mask`: bit mask of the segments with it;
    `uses`: keys of the segments that it uses; `needs`: ids of the account conditions that those contain.
    """

    id: str
    holds: Callable[[UserState, int], bool]
    mask: int
    uses: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()
