"""States of older releases are read and continue without a difference.

The bytes beside this file were written by the release that introduced each format, for one user: a profile, and four orders a
day apart, the last of them two minutes in the future.
"""

from __future__ import annotations

import base64
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from starling_segments import Evaluator, Known, UserState, compile_plan, decode_state, encode_state, parse_segment

STATES = Path(__file__).parent / "states"
FIRST_MS, DAY_MS = 1_767_225_600_000, 86_400_000
BUY = {"event": "Buy"}
CONDITIONS: dict[str, dict[str, Any]] = {
    "count": {**BUY, "op": "gte", "value": 2, "within": "30d"},
    "ever": {**BUY, "op": "gte", "value": 3},
    "sum30": {**BUY, "measure": {"sum": "v"}, "op": "gte", "value": 30, "within": "30d"},
    "sum": {**BUY, "measure": {"sum": "v"}, "op": "gte", "value": 30},
    "kinds30": {**BUY, "measure": {"distinct": "k"}, "op": "gte", "value": 2, "within": "30d"},
    "kinds": {**BUY, "measure": {"distinct": "k"}, "op": "gte", "value": 2},
    "fresh": {"first_time": BUY, "within": "7d"},
    "pro": {"trait": "plan", "op": "eq", "value": "pro"},
    "renewing": {"trait": "renewal", "op": "within_next", "value": "7d"},
}


def evaluator() -> Evaluator:
    return Evaluator(
        compile_plan([parse_segment({"key": key, "name": key, "where": where}, Known()) for key, where in CONDITIONS.items()])
    )


def state_of_today() -> UserState:
    compiled, state = evaluator(), UserState()
    compiled.on_profile(state, {"plan": "pro", "renewal": "2026-02-01", "n": 1.5}, ["a1"], FIRST_MS)
    for i in range(4):
        at = FIRST_MS + i * DAY_MS
        event = SimpleNamespace(name="Buy", time_ms=at + 120_000 * (i == 3), properties={"v": 10 + i, "k": "xy"[i % 2]}, context={})
        compiled.on_event(state, event, at)
    return state


def test_threads_that_write_states_at_once_do_not_meet_in_a_buffer() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            wrong = sum(threads.map(_written_wrong, [1, 40, 700, 90_000]))
    finally:
        sys.setswitchinterval(before)
    assert wrong == 0


def _written_wrong(characters: int) -> int:
    """Return how many of a thread's states of this length differ after decoding."""
    wrong = 0
    for i in range(300):
        state = state_of_today()
        state.traits_json = f'{{"n": {i}, "text": "{"x" * characters}"}}'
        found = decode_state(encode_state(state))
        wrong += (found.traits_json, found.accumulators, found.due) != (state.traits_json, state.accumulators, state.due)
    return wrong


@pytest.mark.parametrize("name", ["format_1", "format_2", "format_3", "format_4"])
def test_an_old_state_is_read(name: str) -> None:
    data = base64.b64decode((STATES / f"{name}.txt").read_text())
    assert data[0] == int(name[-1])
    state, today = decode_state(data), state_of_today()
    compiled = evaluator()
    assert state.traits == {"plan": "pro", "renewal": "2026-02-01", "n": 1.5}
    assert state.accumulators == today.accumulators
    assert (state.memberships, state.due, state.waiting) == (today.memberships, today.due, today.waiting)
    for later in (state, decode_state(encode_state(state))):
        changes = compiled.on_timer(later, FIRST_MS + 60 * DAY_MS)
        assert [(change.segment_key, change.status, (change.effective_at - FIRST_MS) // DAY_MS) for change in changes] == [
            ("fresh", "EXITED", 7), ("renewing", "ENTERED", 24), ("sum30", "EXITED", 31), ("renewing", "EXITED", 31),
            ("count", "EXITED", 32), ("kinds30", "EXITED", 32),
        ]  # fmt: skip
    assert compiled.on_definition(state, FIRST_MS + 60 * DAY_MS, compiled) == []


def test_a_sequence_goes_on_under_a_definition_that_orders_its_checks_another_way() -> None:
    """The leaf node and its captured values stay the same: an early event is compared with a late one."""

    def followed(*, turned: bool) -> Evaluator:
        checks = [
            {"property": "k", "op": "eq", "value": {"step": 0, "property": "k"}},
            {"property": "a", "op": "eq", "value": {"trait": "z"}},
        ]
        look = {"event": "Look", "where": {"all": checks[::-1] if turned else checks}}
        where = {"sequence": [BUY, look], "within": "9d"}
        return Evaluator(compile_plan([parse_segment({"key": "s", "name": "s", "where": where}, Known())]))

    def statuses(evaluator: Evaluator, state: UserState, name: str, time_ms: int, properties: dict[str, Any]) -> list[str]:
        event = SimpleNamespace(name=name, time_ms=time_ms, properties=properties, context={})
        return [change.status for change in evaluator.on_event(state, event, FIRST_MS + DAY_MS)]

    before, after = followed(turned=False), followed(turned=True)
    assert before.plan.leaves == after.plan.leaves
    state = UserState()
    before.on_profile(state, {"z": "zed"}, [], FIRST_MS)
    assert statuses(before, state, "Look", FIRST_MS + 5_000, {"k": "one", "a": "zed"}) == []
    state = decode_state(encode_state(state))
    assert statuses(after, state, "Buy", FIRST_MS + 4_000, {"k": "other"}) == []
    assert statuses(after, state, "Buy", FIRST_MS + 3_000, {"k": "one"}) == ["ENTERED"]
