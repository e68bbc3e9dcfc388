"""Pure core: explains a user's membership, node by node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starling_segments.engine.state import UserState
from starling_segments.language.operators.table import Test

Observe = Callable[[UserState, int], Any]
NextChangeAt = Callable[[UserState, int], int | None]


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a compiled segment. `pointer`: JSON pointer into its document.

    `observed(state, now)`: the value that the truth is based on; `next_change(state, now)`: the earliest later instant at which
    time alone changes the truth.
    """

    pointer: str
    kind: str
    holds: Test
    observed: Observe
    next_change: NextChangeAt
    children: tuple[Node, ...] = ()


def explained(node: Node, state: UserState, now: int) -> dict[str, Any]:
    """Return the node and its descendants as JSON values; instants in epoch ms."""
    return {
        "node": node.pointer,
        "kind": node.kind,
        "truth": node.holds(state, now),
        "observed": node.observed(state, now),
        "next_change_at": node.next_change(state, now),
        "children": [explained(child, state, now) for child in node.children],
    }


def no_value(_state: UserState, _now: int) -> None:
    """Return None: for nodes without an observed value, or that time never changes."""
    return


def earliest(nodes: tuple[Node, ...]) -> NextChangeAt:
    """Return a function for the earliest change among these nodes."""

    def change_at(state: UserState, now: int) -> int | None:
        changes_at = (node.next_change(state, now) for node in nodes)
        return min((change_at for change_at in changes_at if change_at is not None), default=None)

    return change_at
