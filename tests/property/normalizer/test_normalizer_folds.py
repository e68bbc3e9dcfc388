"""The folds of a profile against plain oracles."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from starling_common.outcome import Refused
from starling_items.dedupe import DEFAULT_WINDOW_MS, MAX_SEEN, SeenMessages, is_duplicate, message_hash, remember
from starling_items.profile import merge_traits

HOUR_MS, MINUTE_MS = 3_600_000, 60_000
WINDOW_MS = 24 * HOUR_MS

sightings = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c", "d"]),
        st.sampled_from([0, 1, HOUR_MS, WINDOW_MS - 1, WINDOW_MS, WINDOW_MS + MINUTE_MS]) | st.integers(0, 30 * HOUR_MS),
    ),
    max_size=60,
)


@given(sightings, st.sampled_from([0, 852_076_800_000, 1_767_225_600_000]))
def test_a_message_is_a_duplicate_within_the_window_after_its_last_acceptance(steps: list[tuple[str, int]], now_ms: int) -> None:
    seen = SeenMessages()
    accepted: list[tuple[str, int]] = []
    for message, passed_ms in steps:
        now_ms += passed_ms
        fresh = [other for other, at in accepted if now_ms // MINUTE_MS - at // MINUTE_MS <= WINDOW_MS // MINUTE_MS]
        expected = message in fresh
        assert is_duplicate(seen, message_hash(message), now_ms, WINDOW_MS) is expected
        if not expected:
            accepted.append((message, now_ms))
            remember(seen, message_hash(message), now_ms, WINDOW_MS)
            kept = b"".join(message_hash(other).to_bytes(8, "big") for other in [*fresh, message])
            assert (seen.hashes, len(seen.minutes)) == (kept, len(kept) // 2), "ids beyond the window are dropped"


@settings(max_examples=20)
@given(st.integers(1, 200), st.integers(0, 3))
def test_memory_is_bounded_and_the_latest_are_remembered(more: int, step_ms: int) -> None:
    seen = SeenMessages()
    for number in range(MAX_SEEN + more):
        remember(seen, number, number * step_ms, DEFAULT_WINDOW_MS)
    now_ms = (MAX_SEEN + more) * step_ms
    assert (len(seen.hashes), len(seen.minutes)) == (8 * MAX_SEEN, 4 * MAX_SEEN)
    assert not is_duplicate(seen, more - 1, now_ms, DEFAULT_WINDOW_MS)
    assert all(is_duplicate(seen, number, now_ms, DEFAULT_WINDOW_MS) for number in range(more, MAX_SEEN + more))


floats = st.floats(allow_nan=False, allow_infinity=False).map(lambda number: number + 0.0)  # -0.0 is 0.0
values = st.recursive(
    st.none() | st.booleans() | st.integers() | floats | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
trait_sets = st.dictionaries(st.sampled_from(["a", "b", "c", "address", "é"]), values, max_size=4)


def text_of(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


@given(st.lists(trait_sets, max_size=8))
def test_traits_merge_key_by_key_null_removes_and_nested_values_are_replaced(calls: list[dict[str, Any]]) -> None:
    traits_json = "{}"
    oracle: dict[str, Any] = {}
    for sent in calls:
        before = dict(oracle)
        oracle = {name: value for name, value in {**oracle, **sent}.items() if value is not None}
        merged = merge_traits(traits_json, sent)
        assert not isinstance(merged, Refused)
        traits_json = merged.traits_json
        assert text_of(json.loads(traits_json)) == text_of(oracle)
        differing = {n for n in {*before, *oracle} if text_of(before.get(n)) != text_of(oracle.get(n))}
        assert set(merged.names) == differing


@given(trait_sets)
def test_the_same_traits_again_change_nothing(sent: dict[str, Any]) -> None:
    once = merge_traits("{}", sent)
    assert not isinstance(once, Refused)
    again = merge_traits(once.traits_json, sent)
    assert not isinstance(again, Refused)
    assert again.names == []
    assert again.traits_json == once.traits_json
