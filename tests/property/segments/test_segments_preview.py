"""Previews against the oracle: the members are those of the segment in force, and the evaluated state does not change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from starling_api.ports import PastEvent, UserPast
from starling_api.preview.sampling import Candidate, CandidateEvaluator
from starling_common.settings import Clock
from starling_segments import (
    Known,
    PreviewResult,
    Segment,
    UserState,
    compile_preview,
    encode_state,
    limitations,
    parse_segment,
    required_history,
    stored_leaves,
)  # fmt: skip
from tests.property.segments.folded import CASES, Folded, ask, put
from tests.property.segments.oracle import GRID_MS, MeasuredEvent, Oracle
from tests.property.segments.stories import LISTS, WORLDS, Step, World, conditions, placed, stories

UNLIMITED_MS = 10**15


def lived(story: list[Step], world: World, *, follows_events: bool) -> tuple[Folded, Oracle, int]:
    now = world.base_ms
    oracle, person = Oracle({}, now=now, zone=world.zone), Folded(True, world.zone, UserState(user_id="u"))
    for planned in story[:-1]:
        now += planned.after_ms
        step, event = put(planned, world, now)
        if event and follows_events:
            now = max(now, event.time_ms)
        person.take(step, event, now)
        ask(oracle, step, event, now)
    return person, oracle, now


@dataclass(frozen=True)
class Read:
    """The user's events as the API reads them: only those that are requested."""

    person: Folded

    def pasts(self, workspace: str, users: Sequence[str], since_ms: int, *, inside: bool) -> Sequence[UserPast]:
        events = [(what, at) for kind, what, at in self.person.past if kind == "event" and what.time_ms > since_ms]
        read = [
            PastEvent(one.name, one.time_ms, one.properties if inside else {}, one.context if inside else {}, at * 1000 + number)
            for number, (one, at) in enumerate(events)
        ]
        return [UserPast(read, False)] * len(users)


def tried(person: Folded, where: Any, replaces: str | None, now: int, clock: Clock) -> PreviewResult | None:
    """Evaluate a preview as the API does; None if the known history is not sufficient and a limitation states it."""
    if "account" in repr(where):
        return None  # the other users have not been evaluated for a new account condition
    running: dict[str, Segment] = {one.segment.key: one.segment for one in person.evaluator.plan.segments}
    known = Known({key: frozenset() for key in running}, lists=frozenset(LISTS), accounts=True)
    document = {"key": "tried", "name": "tried", "timezone": person.zone, "where": where}
    preview = compile_preview(parse_segment(document, known), running, replaces, person.paused)
    kept = stored_leaves(list(running.values()))
    past = required_history(preview, kept, now)
    if limitations(preview, kept, past, UNLIMITED_MS):
        return None
    evaluator = CandidateEvaluator("acme", preview, {0: now}, {0: past}, Read(person), clock)
    ((_, found, limits),) = evaluator.evaluate([Candidate("u", 0, encode_state(person.state))])
    assert not limits
    return found


worlds = st.sampled_from(WORLDS)
pauses = st.integers(0, 16).map(lambda i: i * GRID_MS)
wheres = conditions(())


@settings(max_examples=CASES, deadline=None)
@given(stories(), worlds, wheres, pauses, st.booleans())
def test_a_preview_finds_whom_the_oracle_finds(
    story: list[Step], world: World, where: Any, later_ms: int, follows_events: bool
) -> None:
    person, oracle, now = lived(story, world, follows_events=follows_events)
    before = encode_state(person.state)
    now += later_ms
    oracle.advance(now)
    asked = placed(where, world)
    found = tried(person, asked, None, now, Clock.EVENT if follows_events else Clock.WALL)
    assert found is None or found == PreviewResult(False, oracle.known and oracle.holds(asked, now))
    assert encode_state(person.state) == before


def test_what_happened_at_the_very_beginning_of_a_fixed_window_is_read() -> None:
    world = World(zone="UTC", base_ms=86_400_000_000)
    story = [
        Step("define", 0, definitions=(("a", {"event": "B"}),)),
        Step("event", 0, event=MeasuredEvent("A", 0, {}, {}, {})),
        Step("advance", 20_000),
    ]
    person, _, now = lived(story, world, follows_events=False)
    for after_ms, is_in in ((0, True), (1, False)):
        asked = placed({"event": "A", "after": after_ms}, world)
        assert tried(person, asked, None, now, Clock.WALL) == PreviewResult(before=False, after=is_in)


@settings(max_examples=CASES, deadline=None)
@given(stories(), worlds, wheres, st.integers(0, 3), pauses, st.booleans())
def test_a_diff_finds_who_would_come_and_go(
    story: list[Step], world: World, where: Any, place: int, later_ms: int, follows_events: bool
) -> None:
    person, oracle, now = lived(story, world, follows_events=follows_events)
    keys = list(oracle.definitions)
    replaces, others = keys[place % len(keys)], keys[: place % len(keys)]  # a later one may be built on this one
    asked = placed({"any": [where, *({"segment": key} for key in others)]}, world)
    now += later_ms
    oracle.advance(now)
    found = tried(person, asked, replaces, now, Clock.EVENT if follows_events else Clock.WALL)
    assert found is None or found == PreviewResult(replaces in oracle.members(), oracle.known and oracle.holds(asked, now))
