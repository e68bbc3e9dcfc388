"""Packed accumulators and timers behave as mappings."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from starling_segments.aggregates.lifetime import Tally, Total
from starling_segments.engine.serialisation import PackedLeaves, Timers, leaves_of, timers_of

# Concatenations of these ids contain others of them across the boundary.
IDS = ["abababab", "babababa", "aaaaaaaa", "aaaabbbb", "bbbbaaaa", "abababaa", "zzzzzzzz"]
KEPT = st.one_of(st.integers(0, 1 << 40).map(Tally), st.lists(st.floats(allow_nan=False), max_size=40).map(Total))
LEAVES = st.dictionaries(st.sampled_from(IDS), KEPT)
STEPS = st.lists(
    st.tuples(st.sampled_from(["get", "put", "begin", "drop", "through bytes"]), st.sampled_from(IDS), KEPT), max_size=12
)
INSTANTS = st.integers(-(1 << 62), 1 << 62)


@given(LEAVES, STEPS)
def test_leaves_are_what_a_mapping_is(model: dict[str, Any], steps: list[tuple[str, str, Any]]) -> None:
    leaves = leaves_of(model)
    for step, leaf, kept in steps:
        if step == "get":
            assert leaves.get(leaf) == model.get(leaf)
        elif step == "put":
            model[leaf] = kept
            leaves.put(leaf, kept)
        elif step == "begin":
            if leaves.get(leaf) is None:
                model[leaf] = kept
                leaves.put_first(leaf, (kept.__struct_config__.tag, *msgspec.structs.astuple(kept)))
        elif step == "drop":
            model.pop(leaf, None)
            leaves.drop(leaf)
        else:
            ids, lengths, data = leaves.packed()
            leaves = PackedLeaves(ids, bytes(lengths), bytes(data))
        assert (set(leaves), len(leaves), bool(leaves)) == (set(model), len(model), bool(model))
        assert [leaf in leaves for leaf in IDS] == [leaf in model for leaf in IDS]
    again = PackedLeaves(*map(_as_read, leaves.packed()))
    assert again.by_leaf() == model
    assert again == leaves


@given(LEAVES, LEAVES, st.sets(st.sampled_from(IDS)))
def test_leaves_of_another_state_replace_those_here(here: dict[str, Any], there: dict[str, Any], left: set[str]) -> None:
    leaves = leaves_of(here)
    leaves.take_over(leaves_of(there))
    assert leaves.by_leaf() == here | there
    leaves.restrict(left)
    assert leaves.by_leaf() == {leaf: kept for leaf, kept in (here | there).items() if leaf in left}


def test_what_was_changed_in_place_is_kept() -> None:
    leaves = PackedLeaves(*map(_as_read, leaves_of({leaf: Tally(1) for leaf in IDS}).packed()))
    leaves.get(IDS[3]).n = 1 << 40  # the accumulator is longer now
    again = PackedLeaves(*map(_as_read, leaves.packed()))
    assert [again.get(leaf).n for leaf in IDS] == [1, 1, 1, 1 << 40, 1, 1, 1]


@given(st.dictionaries(st.sampled_from(IDS), INSTANTS), st.lists(st.tuples(st.sampled_from(IDS), INSTANTS | st.none())), INSTANTS)
def test_timers_are_what_a_mapping_is(model: dict[str, int], steps: list[tuple[str, int | None]], now: int) -> None:
    timers = timers_of(model)
    for leaf, instant in steps:
        timers.set(leaf, instant)
        if instant is None:
            model.pop(leaf, None)
        else:
            model[leaf] = instant
        assert timers.earliest == min(model.values(), default=None)
    ids, instants, earliest = timers.packed()
    for same in (timers, Timers(ids, bytes(instants), earliest)):
        assert same.by_leaf() == model
        assert sorted(same.due(now)) == sorted(leaf for leaf, instant in model.items() if instant <= now)
    timers.clear()
    assert (timers.by_leaf(), timers.earliest) == ({}, None)


def test_lengths_take_four_bytes_once_one_does_not_fit_into_one() -> None:
    leaves = leaves_of(dict.fromkeys(IDS[:6], Tally(1)))
    assert [len(part) for part in map(_as_read, leaves.packed()[:2])] == [48, 6]
    leaves.put(IDS[2], Total([0.5] * 28))
    assert list(leaves.packed()[1]) == [3, 0, 0, 0, 3, 0, 0, 0, 1, 1, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0]


def test_bytes_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(ValueError, match="3 bytes of lengths for 16 characters"):
        PackedLeaves("a" * 16, b"\0" * 3, b"")
    with pytest.raises(ValueError, match="1 bytes of lengths for 9 characters"):
        PackedLeaves("a" * 9, b"\0", b"")
    with pytest.raises(ValueError, match="characters"):
        PackedLeaves("ä" * 8, b"\0" * 4, b"")
    with pytest.raises(ValueError, match="8 bytes of instants for 0 characters"):
        Timers("", b"\0" * 8, 0)
    with pytest.raises(ValueError, match="from None on"):
        Timers("a" * 8, b"\0" * 8, None)


def _as_read(part: Any) -> Any:
    return bytes(part) if isinstance(part, bytearray) else part
