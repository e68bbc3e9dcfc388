"""Pure core: matches from the future (the wall clock allows five minutes) wait in the state until their time comes."""

from __future__ import annotations

from bisect import insort_right
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from starling_segments.engine.state import UserState, Waiting

_BY_TIME = attrgetter("time")


def wait(state: UserState, time: int, leaf_id: str, payload: Any) -> None:
    """Put a match off until its time comes."""
    insort_right(state.waiting, Waiting(time, leaf_id, payload), key=_BY_TIME)


def next_waiting(state: UserState, leaf_id: str) -> int | None:
    """When the leaf's next match comes in that was put off."""
    return next((match.time for match in state.waiting if match.leaf == leaf_id), None)


def admit_waiting(state: UserState, leaves: Mapping[str, Any], now: int) -> int:
    """Let in what waited until `now` or before; returns the segments whose truth may have changed."""
    dirty, still_waiting = 0, []
    for match in state.waiting:
        leaf = leaves.get(match.leaf)
        if leaf is None or match.time > now:
            still_waiting.append(match)  # of another plan's leaf: that plan will take it when it takes over
        else:
            dirty |= leaf.add(state, match.time, match.payload, now)
    state.waiting = still_waiting
    return dirty
