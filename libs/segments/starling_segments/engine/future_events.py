"""Pure core: matches whose time is after stream time (up to five minutes under the wall clock) are stored and folded later."""

from __future__ import annotations

from bisect import insort_right
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from starling_segments.engine.state import FutureMatch, UserState

_BY_TIME = attrgetter("time")


def defer(state: UserState, time: int, leaf_id: str, payload: Any) -> None:
    """Store a match until stream time reaches its time."""
    insort_right(state.waiting, FutureMatch(time, leaf_id, payload), key=_BY_TIME)


def next_deferred(state: UserState, leaf_id: str) -> int | None:
    """Return the time of the leaf node's next stored match; None without one."""
    return next((match.time for match in state.waiting if match.leaf == leaf_id), None)


def admit_due(state: UserState, leaves: Mapping[str, Any], now: int) -> int:
    """Fold the stored matches up to and at `now`; return the mask of the affected segments."""
    affected, remaining = 0, []
    for match in state.waiting:
        leaf = leaves.get(match.leaf)
        if leaf is None or match.time > now:
            remaining.append(match)  # of a leaf node of another plan: folded by that plan's evaluator
        else:
            affected |= leaf.add(state, match.time, match.payload, now)
    state.waiting = remaining
    return affected
