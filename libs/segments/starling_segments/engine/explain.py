"""Pure core: why someone is in or out of a segment, node by node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starling_segments.engine.state import UserState
from starling_segments.language.operators.table import Test

Observe = Callable[[UserState, int], Any]
Turn = Callable[[UserState, int], int | None]


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a compiled segment. `pointer`: JSON pointer into its document.

    `observed(state, now)`: what the truth was decided from; `next_change(state, now)`: the earliest later instant at
    which it can change without an event.
    """

    pointer: str
    kind: str
    holds: Test
    observed: Observe
    next_change: Turn
    children: tuple[Node, ...] = ()


def explained(node: Node, state: UserState, now: int) -> dict[str, Any]:
    """The node and all below it as JSON values; instants are epoch ms."""
    return {
        "node": node.pointer,
        "kind": node.kind,
        "truth": node.holds(state, now),
        "observed": node.observed(state, now),
        "next_change_at": node.next_change(state, now),
        "children": [explained(child, state, now) for child in node.children],
    }


def nothing(_state: UserState, _now: int) -> None:
    """What a node observes, or when it changes, that observes nothing or never changes."""
    return


def earliest(nodes: tuple[Node, ...]) -> Turn:
    """The first of the nodes to change."""

    def turn(state: UserState, now: int) -> int | None:
        turns = (node.next_change(state, now) for node in nodes)
        return min((turn for turn in turns if turn is not None), default=None)

    return turn
