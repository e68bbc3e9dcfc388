"""Every measure in every window, and events whose times coincide with the edges of the windows."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import cycle
from typing import Any

from hypothesis import strategies as st

from starling_segments import MeasurePlan, UserState, compile_measures, decode_state, encode_state, parse_measure
from starling_segments.language.tree import Window
from starling_segments.parse.windows import CALENDAR, contains
from tests.property.segments.oracle import MeasuredEvent
from tests.property.segments.stories import World, placed

Doc = dict[str, Any]

MEASURES: Sequence[Any] = [
    "count", "first_time", "last_time", {"days": True},
    *({name: "v"} for name in ("sum", "avg", "min", "max", "first", "last", "distinct", "most_frequent")),
    *({name: "k"} for name in ("first", "last", "distinct", "most_frequent")),
    *({"percentile": "v", "q": q} for q in (0, 0.5, 0.95)),
]  # fmt: skip
WINDOWS: Sequence[Doc] = [
    {}, *({"within": length} for length in ("1s", "3s", "5s", "2d")),
    *({"between_ago": pair} for pair in (["2s", "1s"], ["5s", "2s"], ["2d", "2s"])),
    {"after": 2_000}, {"before": 9_000}, {"after": 1_500, "before": 12_000}, *({"calendar": name} for name in CALENDAR),
]  # fmt: skip
ALIGNED: Sequence[Doc] = [
    {}, {"within": "256s"}, {"between_ago": ["512s", "256s"]}, {"after": 20_000, "before": 900_000}, {"calendar": "today"},
]  # fmt: skip
"""Windows whose panes are as long as the steps of `many`: the matches of a pane have one time, so panes leave exactly too."""
STEP_MS = 1_000
_WHERES: Sequence[Doc] = [
    {},
    {"where": {"property": "k", "op": "in", "value": ["x", 1]}},
    {"where": {"any": [{"property": "v", "op": "gte", "value": 1}, {"not": {"property": "k", "op": "exists"}}]}},
    {"where": {"property": "k", "op": "eq", "value": {"trait": "favourite"}}},
]
_NAMES = ("A", "*", "A*")
_AMOUNTS = (0, 1, -1, 0.1, 0.2, 1e16, 2, 3, "5", None)
_KINDS = ("x", "y", 1, 1.0, True, ["x"], None)


@dataclass(frozen=True)
class Arrived:
    """An event, and the stream time that it leads to."""

    event: MeasuredEvent
    now: int


def documents(window: Mapping[str, Any]) -> Iterator[Doc]:
    """Return every measure in a window, of events with and without a filter, and ratios of them."""
    wheres, names = cycle(_WHERES), cycle(_NAMES)
    for measure in MEASURES:
        yield {"event": "*", "measure": measure, **window}
        yield {"event": next(names), "measure": measure, **window, **next(wheres)}
    yield {"measure": {"ratio": {"of": {"event": "A", "measure": {"sum": "v"}}, "to": {"event": "*"}}}, **window}
    yield {"measure": {"ratio": {"of": {"event": "B"}, "to": {"event": "A*", "measure": {"distinct": "k"}}}}, **window}


@cache
def plan_of(number: int, world: World, *, aligned: bool = False) -> MeasurePlan:
    """Return the plan of all measures in one of the windows."""
    window = placed((ALIGNED if aligned else WINDOWS)[number], world)
    return compile_measures([parse_measure(document, world.zone) for document in documents(window)])


def holds_in(window: Window | None) -> Callable[[int, int], bool]:
    """Return (time, instant) -> whether a match is inside the window; None: a lifetime."""
    return (lambda _time, _now: True) if window is None else contains(window)


def folded(plan: MeasurePlan, events: Iterable[Arrived]) -> UserState:
    """Return the state of the events, folded from an empty one, and serialised in between."""
    state = UserState(user_id="u")
    for number, one in enumerate(events):
        plan.fold(state, (one.event.time_ms, plan.matches(one.event)), one.now)
        if number % 7 == 0:
            state = decode_state(encode_state(state))
    return state


def few(world: World) -> st.SearchStrategy[list[Arrived]]:
    """Return up to 40 events: on time, late, from the future and at one instant; stream time may pass several windows at once."""
    step = st.tuples(
        st.sampled_from([0, 0, 0, 0, 500, 1_000, 3_000, 90_000_000]),
        st.sampled_from([0, 0, 0, 0, -500, -1_000, -2_500, -6_000, 500, 2_000]),
        st.sampled_from(["A", "AB", "B"]),
        st.sampled_from(_AMOUNTS),
        st.sampled_from(_KINDS),
    )
    return st.lists(step, max_size=40).map(lambda steps: _arrived(world, steps))


def many(world: World, seed: int, length: int) -> list[Arrived]:
    """Return events at whole steps, several of them at one instant, some late; more values than are stored one by one.

    Amounts are whole numbers, whose sums are exact in panes too.
    """
    dice = random.Random(seed)
    busy = dice.choice([(0, 0, 0, 1), (0, 1), (0, 0, 0, 0, 0, 0, 2)])
    steps = [
        (
            STEP_MS * dice.choice(busy),
            STEP_MS * dice.choice((0, 0, 0, -1, -3, -40, 2)),
            dice.choice(("A", "AB", "B")),
            dice.randrange(1_000) if dice.random() < 0.9 else dice.choice(("5", None)),
            dice.choice(_KINDS),
        )
        for _ in range(length)
    ]
    return _arrived(world, steps)


def _arrived(world: World, steps: Sequence[tuple[int, int, str, Any, Any]]) -> list[Arrived]:
    now, found = world.base_ms, []
    for after_ms, offset_ms, name, amount, kind in steps:
        now += after_ms
        properties = {key: value for key, value in (("v", amount), ("k", kind)) if value is not None}
        found.append(Arrived(MeasuredEvent(name, now + offset_ms, properties, {}, {"favourite": "y"}), now))
    return found
