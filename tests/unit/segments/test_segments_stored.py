"""All kinds of accumulators are read from stored bytes, and continue as a fold from today would.

States outlive the program that wrote them. A change of accumulators or of their ids that cannot read stored states fails here.
When `LEAVES` (`identity.py`) is raised, a leaf node may get another id: its cases are stored again.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, get_args

import msgspec
import pytest

from starling_segments import UserState, decode_state, encode_state, plain
from starling_segments.aggregates.accumulators import Accumulator, Delayed, Link, Periods
from starling_segments.aggregates.distributions import Frequency, Summary
from starling_segments.engine.state import AccountTally, Belonging, FutureMatch, Membership
from tests.unit.segments.stored import STATES, Case, cases, go_on, read, state_of

FILES = sorted(STATES.glob("format_*.json"))
CASES = cases()
STORED = {(path.stem, name): data for path in FILES for name, data in read(path).items()}
NEVER_FILLED = {"SlidingLastTime.seen"}  # of `last_time`, which reads no property; `last` stores it as SlidingLast.seen
PARTS: tuple[Any, ...] = (
    *get_args(Accumulator),
    Link,
    Frequency,
    *get_args(Summary),
    FutureMatch,
    Membership,
    AccountTally,
    Belonging,
)


@cache
def today(name: str) -> bytes:
    return encode_state(state_of(CASES[name]))


@pytest.mark.parametrize(("file", "name"), STORED)
def test_what_was_stored_is_what_a_fold_gives_and_goes_on_like_it(file: str, name: str) -> None:
    data = STORED[file, name]
    assert data[0] == int(file.removeprefix("format_"))
    stored, folded = decode_state(data), decode_state(today(name))
    assert plain(stored) == plain(folded)
    assert stored.accumulators == folded.accumulators
    case: Case = CASES[name]
    assert go_on(case, stored) == go_on(case, folded)
    assert plain(stored) == plain(folded)


def test_every_case_is_stored() -> None:
    """A new case is stored by python -m tests.unit.segments.stored."""
    assert set(CASES) == {name for _, name in STORED}


def test_all_that_can_be_kept_is_stored_somewhere() -> None:
    """Each type of accumulator, and each of its fields with a value."""
    found = {(type(part), name) for state in states() for part in parts(state) for name in filled(part)}
    wanted = {(kind, name) for kind in PARTS for name in kind.__struct_fields__}
    missing = {f"{kind.__name__}.{name}" for kind, name in wanted - found}
    assert missing == NEVER_FILLED, "store a case that keeps it: tests/unit/segments/stored.py"


def states() -> Iterator[UserState]:
    for data in STORED.values():
        yield decode_state(data)


def parts(state: UserState) -> Iterator[Any]:
    yield from (match for match in state.waiting)
    yield from (membership for membership in state.memberships.values())
    yield from (part for part in (state.account, state.belongs) if part is not None)
    for kept in state.accumulators.by_leaf().values():
        yield from inside(kept)


def inside(kept: Any) -> Iterator[Any]:
    """Iterate over an object and everything in it."""
    if isinstance(kept, msgspec.Struct):
        yield kept
        for name in kept.__struct_fields__:
            yield from inside(getattr(kept, name))
    elif isinstance(kept, list | tuple):
        for item in kept:
            yield from inside(item)
    elif isinstance(kept, dict):
        for item in kept.values():
            yield from inside(item)


def filled(part: Any) -> Iterator[str]:
    """Return the names of the fields that are not empty."""
    for name in part.__struct_fields__:
        if getattr(part, name) not in (None, 0, False, "", b"", [], {}, ()):
            yield name


def test_an_accumulator_in_an_accumulator_is_stored_too() -> None:
    """`between_ago` and `calendar` contain other accumulators: one case for each of those."""
    found = {
        (type(kept), type(part)) for state in states() for kept in state.accumulators.by_leaf().values() for part in inside(kept)
    }
    delayed = {part for kept, part in found if kept is Delayed}
    periods = {part for kept, part in found if kept is Periods}
    assert {kind.__name__ for kind in get_args(Accumulator) if kind.__name__.startswith("Sliding")} <= {p.__name__ for p in delayed}
    assert len(periods) >= 13
