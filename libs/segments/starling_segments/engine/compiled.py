"""Pure core: what a plan is made of, and what comes out of it."""

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
    """A user entered or left a segment. `effective_at`: epoch ms; `sequence`: odd on entry, even on exit."""

    segment_key: str
    segment_version: int
    status: Status
    sequence: int
    effective_at: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class CompiledSegment:
    """`holds(state, now)`; `dependents`: the segments built on it, which all come later in the plan."""

    segment: Segment
    holds: Callable[[UserState, int], bool]
    tree: Node
    dependents: int


@dataclass(frozen=True, slots=True)
class CompiledAccount:
    """A condition on the users of an account. `holds(state, now)`: what this user says to it; `mask`: who asks;
    `uses`: keys of the segments that it is built on; `needs`: the conditions on an account that these are built on.
    """

    id: str
    holds: Callable[[UserState, int], bool]
    mask: int
    uses: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()
