"""The election: who may take the Lease, and until when its holder acts."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starling_scaler.election import Election, LeaseRecord, Turn


def election(identity: str = "b") -> Election:
    return Election(identity, duration_seconds=15, deadline_seconds=10)


HELD = LeaseRecord(holder="a", duration_seconds=15, version="1")


def test_a_lease_that_does_not_exist_is_created_and_then_renewed() -> None:
    one = election()
    assert one.turn(None, 0) is Turn.CREATE
    assert not one.leads(0)
    one.won(0)
    assert one.leads(9.9)
    assert one.turn(LeaseRecord("b", 15, "1"), 2) is Turn.RENEW


def test_a_lease_of_another_is_taken_only_after_its_duration_without_a_change() -> None:
    one = election()
    assert one.turn(HELD, 100) is Turn.WAIT
    assert one.turn(HELD, 114.9) is Turn.WAIT
    assert one.turn(replace(HELD, version="2"), 115) is Turn.WAIT, "it was renewed meanwhile"
    assert one.turn(replace(HELD, version="2"), 129.9) is Turn.WAIT
    assert one.turn(replace(HELD, version="2"), 130) is Turn.TAKE


def test_a_lease_that_was_given_up_is_taken_at_once() -> None:
    assert election().turn(replace(HELD, holder=""), 0) is Turn.TAKE


def test_a_leader_without_an_answer_stops_before_another_may_begin() -> None:
    leader, other = election("a"), election("b")
    leader.turn(None, 0)
    leader.won(0)
    other.turn(HELD, 0)
    assert leader.leads(9.9)
    assert not leader.leads(10)
    assert other.turn(HELD, 14.9) is Turn.WAIT
    assert other.turn(HELD, 15) is Turn.TAKE


def test_a_leader_whose_lease_another_holds_or_that_is_deleted_leads_no_longer() -> None:
    for found in (replace(HELD, holder="c", version="9"), None):
        one = election()
        one.turn(None, 0)
        one.won(0)
        one.turn(found, 1)
        assert not one.leads(1)


def test_a_candidate_whose_write_was_refused_does_not_lead() -> None:
    one = election()
    one.won(0)
    one.lost()
    assert not one.leads(0)


def test_a_deadline_of_the_whole_duration_is_refused() -> None:
    with pytest.raises(ValueError, match="has to be below the duration"):
        Election("a", duration_seconds=15, deadline_seconds=15)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 8), st.booleans()), max_size=60))
def test_two_candidates_never_lead_at_the_same_time(turns: list[tuple[str, float, bool]]) -> None:
    """Each turn: a candidate, the seconds since the turn before, and whether the API server answers it."""
    candidates = {name: election(name) for name in "abc"}
    stored: LeaseRecord | None = None
    now, version = 0.0, 0
    for name, seconds, answers in turns:
        now += seconds
        if answers and candidates[name].turn(stored, now) is not Turn.WAIT:
            version += 1
            stored = LeaseRecord(name, 15, str(version))
            candidates[name].won(now)
        assert sum(one.leads(now) for one in candidates.values()) <= 1
