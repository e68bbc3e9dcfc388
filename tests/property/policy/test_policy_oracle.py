"""The policy against the oracle, which evaluates every instant over everything that happened."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from starling_policy import (
    ConsentChange,
    Decision,
    Defer,
    Drop,
    History,
    Message,
    PastMessage,
    Person,
    Policy,
    Send,
    Suppression,
    Waiting,
    address_digest,
    decide,
    decide_until,
    parse_campaign,
    parse_policy,
    waiting_message,
    wake,
)
from tests.property.policy.oracle import Oracle, Planned, Queue, Sent
from tests.property.policy.stories import Story, stories

CASES = int(os.environ.get("STARLING_ORACLE_DELIVERY_CASES", "300"))
GENERATED = settings(max_examples=CASES, deadline=None, suppress_health_check=list(HealthCheck))
CHANGES_CHECKED = 4


def message_of(planned: Planned) -> Message:
    exits = tuple(at for at, reason in planned.cancels if reason == "left_segment")
    events = tuple(at for at, reason in planned.cancels if reason == "cancelled")
    return Message(parse_campaign(planned.campaign), planned.due, planned.instance, planned.triggered, exits, events)


def past_of(sent: Sent) -> PastMessage:
    rules = parse_campaign(sent.campaign)
    return PastMessage(
        sent.at, rules.channel, rules.purpose, rules.campaign, rules.dedupe_key, sent.held_out, sent.slot_returned
    )  # fmt: skip


def person_of(story: Story) -> Person:
    return Person(
        story.known.user,
        story.traits,
        story.devices,
        tuple(ConsentChange(*change) for change in story.known.consent_changes),
        tuple(Suppression(channel, address_digest(address), kind) for channel, address, kind in story.suppressions),
        History(past_of(one) for one in story.known.sent),
    )


def seen(decision: Decision) -> tuple[str, int | None, str | None]:
    match decision.outcome:
        case Send():
            return "send", None, None
        case Defer(until, reason):
            return "defer", until, reason
        case Drop(reason):
            return "drop", None, reason


@GENERATED
@given(story=stories(messages=1), data=st.data())
def test_a_decision_is_that_of_the_oracle_until_its_next_change(story: Story, data: st.DataObject) -> None:
    (planned,) = story.messages
    oracle = Oracle(story.policy, story.known, story.instants())
    message, person, policy = message_of(planned), person_of(story), parse_policy(story.policy)
    now = data.draw(st.sampled_from([at for at in oracle.instants if at >= planned.due]))
    now = planned.due if data.draw(st.booleans()) else now
    for _ in range(CHANGES_CHECKED):
        decision = decide(message, person, policy, now)
        wanted = oracle.outcome(planned, now)
        assert seen(decision) == wanted, (now, decision)
        assert list(decision.reasons) == list(oracle.reasons(planned, now)), now
        assert decision.variant == oracle.variant(planned.campaign)
        change_at = decision.next_change_at
        if isinstance(decision.outcome, Defer):
            assert_allowed_at(message, person, policy, decision.outcome.until)
        if change_at is None or change_at > oracle.instants[-1]:
            last = min(change_at or oracle.instants[-1] + 1, oracle.instants[-1] + 1) - 1
            assert last < now or oracle.outcome(planned, last) == wanted
            break
        assert change_at > now
        for instant in {now + (change_at - now) // 3, now + (change_at - now) // 2, change_at - 1}:
            assert oracle.outcome(planned, instant) == wanted, (now, instant, change_at)
        assert list(oracle.reasons(planned, change_at)) != list(oracle.reasons(planned, change_at - 1)), change_at
        now = change_at


def assert_allowed_at(message: Message, person: Person, policy: Policy, until: int) -> None:
    """Neither quiet hours nor caps are a reason at the end of a deferral."""
    assert not {"quiet_hours", "capped", "expired"} & set(decide(message, person, policy, until).reasons)


@GENERATED
@given(story=stories(messages=6), cuts=st.sets(st.integers(0, 60), max_size=4))
def test_rivals_are_decided_as_by_the_oracle(story: Story, cuts: set[int]) -> None:
    oracle = Oracle(story.policy, story.known, story.instants())
    policy, person = parse_policy(story.policy), person_of(story)
    queue = Queue(oracle, policy.priority_hold_ms)
    waiting: tuple[Waiting, ...] = ()
    for planned in story.messages:
        queue.add(planned)
        waiting = (*waiting, waiting_message(message_of(planned), policy))
    log: list[Any] = []
    stops = {story.start + cut * story.grid_ms for cut in cuts} | {at for at, _ in story.returns} | {oracle.instants[-1]}
    for now in oracle.instants:
        queue.look(now)
        if now not in stops:
            continue
        waiting, person = go_on(waiting, person, policy, now, log)
        for number in [number for at, number in story.returns if at == now]:
            person = give_back(oracle, person, number)
            queue.wake(now)
            queue.look(now)
            waiting, person = go_on(wake(waiting, now), person, policy, now, log)
        assert log == queue.log, now
    assert not waiting
    assert not queue.waiting


def go_on(
    waiting: tuple[Waiting, ...], person: Person, policy: Policy, now: int, log: list[Any]
) -> tuple[tuple[Waiting, ...], Person]:
    progress = decide_until(waiting, person, policy, now)
    log += [(at, one.rules.campaign, one.instance, *seen(decision)) for one, at, decision in progress.decided]
    return progress.waiting, progress.person


def give_back(oracle: Oracle, person: Person, number: int) -> Person:
    """Give the slot of the message with this number, in order of request, back on both sides."""
    if number < len(oracle.known.sent):
        oracle.known.sent[number].slot_returned = True
    return replace(person, history=History(past_of(one) for one in oracle.known.sent))
