"""A mirror that gets batches with failures, repetitions and re-reading has what a plain dict of the feed has."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from starling_audience.changes import Change, fold

Feed = list[tuple[str, str]]


@st.composite
def feeds(draw: st.DrawFn) -> tuple[Feed, list[Change]]:
    """Pairs of user and segment in the order of the feed, and their changes with growing sequences."""
    pairs = draw(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("st")), max_size=40))
    counts: dict[tuple[str, str], int] = {}
    changes = []
    for user, segment in pairs:
        sequence = counts[user, segment] = counts.get((user, segment), 0) + 1
        changes.append(Change(user, segment, sequence % 2 == 1, sequence))
    return pairs, changes


def plain(changes: Sequence[Change]) -> dict[tuple[str, str], bool]:
    return {change.key: change.is_member for change in changes}


@given(st.data())
def test_the_mirror_equals_a_plain_dict_after_any_interleaving_with_retries(data: Any) -> None:
    _, changes = data.draw(feeds())
    mirror: dict[tuple[str, str], bool] = {}
    committed = 0
    while committed < len(changes):
        size = data.draw(st.integers(1, len(changes) - committed))
        newest: dict[tuple[str, str], Change] = {}
        fold(newest, changes[committed : committed + size])
        found = list(newest.values())
        # Requests of one batch arrive in any order, and a failure lets only some of them arrive.
        arrived = data.draw(st.permutations(found))
        is_taken = data.draw(st.booleans())
        for change in arrived if is_taken else arrived[: data.draw(st.integers(0, len(arrived)))]:
            mirror[change.key] = change.is_member
        if is_taken or data.draw(st.integers(0, 9)) == 0:
            for change in found:
                mirror[change.key] = change.is_member
            committed += size
    assert mirror == plain(changes)


@given(st.data())
def test_older_records_after_newer_ones_do_not_win_within_a_batch(data: Any) -> None:
    """The first sync has read the newest records of some pairs; the feed then repeats older ones before them."""
    _, changes = data.draw(feeds())
    newest: dict[tuple[str, str], Change] = {}
    fold(newest, {change.key: change for change in changes}.values())
    fold(newest, changes[: data.draw(st.integers(0, len(changes)))])
    assert {key: change.is_member for key, change in newest.items()} == plain(changes)


@given(st.data())
def test_a_refusal_of_consent_wins_over_what_was_read_before_it(data: Any) -> None:
    _, changes = data.draw(feeds())
    at = data.draw(st.integers(0, len(changes)))
    newest: dict[tuple[str, str], Change] = {}
    fold(newest, changes[:at])
    fold(newest, [Change("a", segment, False, 0, overrides=True) for segment in "st"])
    # What is read after the refusal is evaluated with it.
    fold(newest, [Change(one.user_id, one.segment, one.is_member and one.user_id != "a", one.sequence) for one in changes[at:]])
    expected = plain(changes) | {("a", segment): False for segment in "st"}
    assert {key: change.is_member for key, change in newest.items()} == expected
