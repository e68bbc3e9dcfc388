"""Messages that wait: their order, rivals for one slot, returned slots, and too many of them."""

import pytest

from starling_policy import (
    Defer,
    Drop,
    Message,
    Person,
    Policy,
    Progress,
    Send,
    Waiting,
    admit,
    decide_until,
    decision_order,
    parse_campaign,
    waiting_message,
    wake,
)
from starling_policy.bounds import MAX_PENDING
from tests.unit.policy.making import DAY_MS, HOUR_MS, NOW, past, person, policy

ONE_A_DAY = policy(caps=[{"limit": 1, "per": "1d"}])


def rival(key: str, due: int = NOW, **fields: object) -> Message:
    return Message(parse_campaign({"key": key, "channel": "email", "expires_after": "7d", **fields}), due, "1")


def run(*messages: Message, until: int, rules: Policy = ONE_A_DAY, whom: Person | None = None) -> Progress:
    return decide_until([waiting_message(one, rules) for one in messages], whom or person(), rules, until)


def keys(progress: Progress) -> list[tuple[str | None, int]]:
    """Return (campaign, instant) of each message that was sent."""
    return [(one.rules.campaign, at) for one, at, decision in progress.decided if decision.outcome == Send()]


def test_of_two_rivals_for_one_slot_the_higher_priority_is_sent_and_the_other_waits_for_the_next() -> None:
    progress = run(rival("low", priority=10), rival("high", priority=90), until=NOW)
    assert keys(progress) == [("high", NOW)]
    [(low, at, deferred)] = progress.waiting
    assert (low.rules.campaign, at, deferred) == ("low", NOW + DAY_MS, True)
    assert keys(decide_until(progress.waiting, progress.person, ONE_A_DAY, NOW + DAY_MS)) == [("low", NOW + DAY_MS)]


def test_a_freed_slot_goes_to_the_highest_priority_then_the_earlier_due_then_the_key() -> None:
    taken = person(past(NOW - HOUR_MS))
    slot_at = NOW + 23 * HOUR_MS
    rivals = [rival("b"), rival("a"), rival("earlier", NOW - 1), rival("high", NOW + 1, priority=51)]
    progress = run(*rivals, until=NOW + 6 * DAY_MS, whom=taken)
    wanted = ["high", "earlier", "a", "b"]
    assert keys(progress) == [(key, slot_at + number * DAY_MS) for number, key in enumerate(wanted)]


def test_messages_of_one_campaign_are_ordered_by_instance() -> None:
    one = rival("a")
    assert decision_order(Waiting(one, 1)) < decision_order(Waiting(Message(one.rules, NOW, "2"), 1))


def test_the_end_of_quiet_hours_is_an_instant_at_which_rivals_meet() -> None:
    rules = policy(caps=[{"limit": 1, "per": "1d"}], quiet_hours={"from": "21:00", "to": "08:00"})
    progress = run(rival("early"), rival("fresh", NOW + 8 * HOUR_MS, priority=60), until=NOW + 8 * HOUR_MS, rules=rules)
    assert keys(progress) == [("fresh", NOW + 8 * HOUR_MS)]


def test_without_a_hold_an_earlier_message_takes_the_slot_and_with_it_the_rivals_meet() -> None:
    first, second = rival("first"), rival("second", NOW + 1, priority=60)
    assert keys(run(first, second, until=NOW + HOUR_MS)) == [("first", NOW)]
    held = policy(caps=[{"limit": 1, "per": "1d"}], priority_hold="1h")
    assert keys(run(first, second, until=NOW + HOUR_MS, rules=held)) == [("first", NOW + HOUR_MS)]
    second = rival("second", NOW, priority=60)
    assert keys(run(first, second, until=NOW + HOUR_MS, rules=held)) == [("second", NOW + HOUR_MS)]
    assert waiting_message(rival("receipt", purpose="transactional"), held).at == NOW


def test_a_hold_ends_at_the_expiry_and_expires_no_message() -> None:
    held = policy(priority_hold="1d")
    assert keys(run(rival("short", expires_after="1h"), until=NOW + DAY_MS, rules=held)) == [("short", NOW + HOUR_MS)]


def test_nothing_is_decided_before_its_instant() -> None:
    progress = run(rival("a"), until=NOW - 1)
    assert (progress.decided, len(progress.waiting)) == ((), 1)


def test_a_backlog_is_decided_at_the_due_instants() -> None:
    progress = run(rival("a"), rival("b", NOW + DAY_MS), until=NOW + 60 * DAY_MS)
    assert keys(progress) == [("a", NOW), ("b", NOW + DAY_MS)]


def test_a_returned_slot_wakes_deferred_messages_alone() -> None:
    taken = person(past(NOW - HOUR_MS))
    before = run(rival("a"), rival("later", NOW + 5 * HOUR_MS), until=NOW, whom=taken)
    returned = person(past(NOW - HOUR_MS, slot_returned=True))
    woken = wake(before.waiting, NOW + HOUR_MS)
    assert sorted(one.at for one in woken) == [NOW + HOUR_MS, NOW + 5 * HOUR_MS]
    assert keys(decide_until(woken, returned, ONE_A_DAY, NOW + HOUR_MS)) == [("a", NOW + HOUR_MS)]


def test_a_message_that_was_held_out_counts_for_re_entry_and_not_for_caps() -> None:
    held = rival("held", holdout={"percent": 100}, reentry="once")
    again = Message(held.rules, NOW + 1, "2")
    progress = run(held, rival("other", NOW + 1), again, until=NOW + 1)
    outcomes = {(one.rules.campaign, one.instance): decision.outcome for one, _, decision in progress.decided}
    assert outcomes == {("held", "1"): Drop("holdout"), ("other", "1"): Send(), ("held", "2"): Drop("reentry")}


def test_the_slot_is_lost_to_rivals_until_expiry() -> None:
    late = rival("late", expires_after="1d", priority=0)
    progress = run(late, rival("a"), rival("b"), until=NOW + 2 * DAY_MS)
    decisions = [(at, decision.outcome) for one, at, decision in progress.decided if one is late]
    assert decisions == [(NOW, Defer(NOW + DAY_MS, "capped")), (NOW + DAY_MS, Drop("capped"))]


def test_of_too_many_the_last_in_decision_order_goes() -> None:
    full = [Waiting(rival(f"c{number}", NOW + number), NOW + number) for number in range(MAX_PENDING)]
    kept, dropped = admit(full[:-1], full[-1])
    assert (len(kept), dropped) == (MAX_PENDING, None)
    kept, dropped = admit(full, Waiting(rival("newcomer", NOW), NOW))
    assert (len(kept), dropped) == (MAX_PENDING, full[-1])
    newcomer = Waiting(rival("newcomer", NOW + DAY_MS), NOW + DAY_MS)
    kept, dropped = admit(full, newcomer)
    assert (list(kept), dropped) == (full, newcomer)
    with pytest.raises(ValueError, match="messages wait: at most"):
        decide_until([*full, newcomer], person(), ONE_A_DAY, NOW)
