"""The oracle of the messenger against stories with a known end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.property.messenger.oracle import Oracle
from tests.property.messenger.story import (
    AddressSuppressed,
    Answer,
    BroadcastListed,
    CampaignActivated,
    CampaignEdited,
    CampaignSwitched,
    Check,
    ClockAdvanced,
    ConsentChanged,
    Document,
    EventReceived,
    Input,
    MembershipChanged,
    OutcomeReported,
    PolicyChanged,
    Story,
    TraitsReplaced,
)
from tests.property.messenger.values import DAY, HOUR, MINUTE, instant, instant_of_local, murmur3_32, rank

NOON = instant("2026-06-01T12:00Z")
"""The start of most stories; decisions are given in ms after it."""
TRAITS: Document = {"email": "u@example.com", "phone": "+491701234567", "consent": {"email": True, "sms": True}}
SENT = ("requested", None)

Ending = tuple[str, str, int, str, str | None]
"""(campaign, instance, decided at after noon, status, reason)"""


def campaign(key: str = "a", trigger: Document | None = None, **changed: Any) -> Document:
    content = {"subject": "Hello", "text": "Hello"}
    document: Document = {"key": key, "name": key, "trigger": trigger or {"event": {"event": "E"}}, "channel": "email"}
    return {**document, "target": "smtp", "variants": [{"key": "v", "weight": 100, "content": content}], **changed}


def activated(*documents: Document, at: int = NOON) -> list[Input]:
    return [CampaignActivated(document, at) for document in documents]


def capped(limit: int, per: str, **other: Any) -> PolicyChanged:
    return PolicyChanged({"caps": [{"limit": limit, "per": per}], **other})


def quiet(start: str, end: str, zone: str = "UTC") -> PolicyChanged:
    return PolicyChanged({"timezone": zone, "quiet_hours": {"from": start, "to": end}})


def event(after: int, name: str = "E", *, event_id: str = "", received: int | None = None, **properties: Any) -> EventReceived:
    at = NOON + after
    received_at = NOON + received if received is not None else max(at, NOON)
    return EventReceived(event_id or f"{name}{after}", name, at, received_at, properties)


def entered(after: int, sequence: int = 1, segment: str = "s", **other: Any) -> MembershipChanged:
    return MembershipChanged(segment, "ENTERED", NOON + after, sequence, max(NOON + after, NOON), **other)


def exited(after: int, sequence: int = 2, segment: str = "s", **other: Any) -> MembershipChanged:
    return MembershipChanged(segment, "EXITED", NOON + after, sequence, max(NOON + after, NOON), **other)


def clock(after: int) -> ClockAdvanced:
    return ClockAdvanced(NOON + after)


def failed(key: str, instance: str, outcome: str = "FAILED") -> OutcomeReported:
    return OutcomeReported(key, instance, outcome, NOON)


def unsubscribed(at: int = 0, *, granted: bool = False, purpose: str | None = "marketing") -> ConsentChanged:
    return ConsentChanged("email", purpose, granted, NOON + at)


def oracle_after(*parts: Any, end: int | None = 9 * DAY, user: str = "u") -> Oracle:
    """Return the oracle after a story of a person who has an address and consent."""
    inputs: list[Input] = [one for part in parts for one in (part if isinstance(part, list) else [part])]
    oracle = Oracle(user)
    last = [] if end is None else [clock(end)]
    oracle.read(Story(user, (clock(0), TraitsReplaced(TRAITS), *inputs, *last)))
    return oracle


def endings(*parts: Any, end: int | None = 9 * DAY) -> list[Ending]:
    decisions = oracle_after(*parts, end=end).decisions
    return [(one.campaign, one.instance, one.decided_at - NOON, one.status, one.reason) for one in decisions]


def ends(*parts: Any, end: int | None = 9 * DAY) -> list[tuple[int, str, str | None]]:
    """Return (decided at, status, reason) in the order of the decisions."""
    return [one[2:] for one in endings(*parts, end=end)]


# Cancelling


@pytest.mark.parametrize(
    ("at", "end"),
    [
        (0, (HOUR, *SENT)),
        (1, (1, "dropped", "left_segment")),
        (HOUR, (HOUR, "dropped", "left_segment")),
        (HOUR + 1, (HOUR, *SENT)),
    ],
)
def test_an_exit_after_the_trigger_and_up_to_the_due_instant_cancels(at: int, end: object) -> None:
    assert ends(activated(campaign(trigger={"enter": "s"}, delay="1h")), entered(0), exited(at)) == [end]


def test_a_person_who_entered_again_is_cancelled_and_the_new_entry_counts() -> None:
    story = [entered(0), exited(MINUTE), entered(2 * MINUTE, 3)]
    assert endings(activated(campaign(trigger={"enter": "s"}, delay="1h")), *story) == [
        ("a", "1", MINUTE, "dropped", "left_segment"),
        ("a", "3", HOUR + 2 * MINUTE, *SENT),
    ]


def test_cancel_left_can_be_switched_off() -> None:
    document = campaign(trigger={"enter": "s"}, delay="1h", cancel={"left": False})
    assert ends(activated(document), entered(0), exited(MINUTE)) == [(HOUR, *SENT)]


def test_an_entry_cancels_a_campaign_on_exit_whatever_its_cause() -> None:
    document = campaign(trigger={"exit": "s"}, delay="1h")
    story = [entered(-2), exited(0), entered(HOUR, 3, cause="DEFINITION")]
    assert endings(activated(document), *story) == [("a", "2", HOUR, "dropped", "left_segment")]


@pytest.mark.parametrize(("before", "reason"), [(1, "cancelled"), (0, "left_segment"), (-1, "left_segment")])
def test_the_earliest_cancel_gives_the_reason_and_the_exit_wins_a_tie(before: int, reason: str) -> None:
    document = campaign(trigger={"enter": "s"}, delay="1h", cancel={"event": {"event": "C"}})
    story = [entered(0), event(MINUTE - before, "C"), exited(MINUTE)]
    assert ends(activated(document), *story) == [(MINUTE - max(before, 0), "dropped", reason)]


def test_a_cancelling_event_counts_by_its_instant_and_not_by_its_arrival() -> None:
    document = campaign(delay="1h", cancel={"event": {"event": "C", "where": {"property": "n", "op": "eq", "value": 1}}})
    assert ends(activated(document), event(20, "C", n=1), event(10)) == [(20, "dropped", "cancelled")]
    assert ends(activated(document), event(10, "C", n=1), event(10)) == [(HOUR + 10, *SENT)]
    assert ends(activated(document), event(10), event(20, "C", n=True)) == [(HOUR + 10, *SENT)]
    late = event(20, "C", received=30 * MINUTE, n=1)
    assert ends(activated(document), event(10), clock(30 * MINUTE), late) == [(30 * MINUTE, "dropped", "cancelled")]
    assert ends(activated(document), event(10), clock(2 * HOUR), late) == [(HOUR + 10, *SENT)]


def test_an_exit_while_deferred_cancels_up_to_the_decision() -> None:
    document = campaign(trigger={"enter": "s"})
    for at, end in ((HOUR, (HOUR, "dropped", "left_segment")), (2 * HOUR, (2 * HOUR, "dropped", "left_segment")), (3 * HOUR, None)):
        assert ends(quiet("12:00", "14:00"), activated(document), entered(0), exited(at)) == [end or (2 * HOUR, *SENT)]


# Order, caps and quiet hours


def test_a_slot_is_free_exactly_per_after_its_request() -> None:
    story = [capped(1, "1h"), activated(campaign()), event(0)]
    assert ends(*story, event(HOUR)) == [(0, *SENT), (HOUR, *SENT)]
    assert ends(*story, event(HOUR - 1)) == [(0, *SENT), (HOUR, *SENT)]
    assert ends(*story, event(HOUR - 1), end=HOUR - 1) == [(0, *SENT)]


def test_a_deferral_ends_up_to_and_at_the_expiry_or_the_message_is_dropped_at_once() -> None:
    story = [capped(1, "1h"), activated(campaign(expires_after="30m")), event(0)]
    assert ends(*story, event(30 * MINUTE)) == [(0, *SENT), (HOUR, *SENT)]
    assert ends(*story, event(30 * MINUTE - 1)) == [(0, *SENT), (30 * MINUTE - 1, "dropped", "capped")]
    assert ends(quiet("12:00", "12:31"), activated(campaign(expires_after="30m")), event(0)) == [(0, "dropped", "quiet_hours")]
    assert ends(quiet("12:00", "12:30"), activated(campaign(expires_after="30m")), event(0)) == [(30 * MINUTE, *SENT)]


def test_the_mode_drop_drops() -> None:
    assert ends(quiet("12:00", "13:00"), activated(campaign(quiet="drop")), event(0)) == [(0, "dropped", "quiet_hours")]
    story = [capped(1, "1h"), activated(campaign(caps="drop")), event(0), event(1)]
    assert ends(*story) == [(0, *SENT), (1, "dropped", "capped")]


def test_quiet_hours_and_caps_have_one_wait() -> None:
    policy = capped(1, "3h", timezone="UTC", quiet_hours={"from": "12:30", "to": "13:00"})
    document = campaign(caps="drop")
    assert ends(policy, activated(document), event(0), event(30 * MINUTE)) == [(0, *SENT), (3 * HOUR, *SENT)]
    policy = capped(1, "1h", timezone="UTC", quiet_hours={"from": "13:00", "to": "15:00"})
    assert ends(policy, activated(campaign(quiet="drop")), event(0), event(1)) == [(0, *SENT), (3 * HOUR, *SENT)]


@pytest.mark.parametrize(
    ("zone", "start", "end", "at", "until"),
    [
        ("Europe/Berlin", "21:00", "08:00", "2026-06-01T21:30Z", "2026-06-02T06:00Z"),
        ("Europe/Berlin", "21:00", "08:00", "2026-06-01T19:00Z", "2026-06-02T06:00Z"),
        ("Europe/Berlin", "21:00", "08:00", "2026-06-01T18:59:59.999Z", "2026-06-01T18:59:59.999Z"),
        # The night of the spring change is an hour shorter, that of the autumn change an hour longer.
        ("Europe/Berlin", "21:00", "08:00", "2026-03-28T20:00Z", "2026-03-29T06:00Z"),
        ("Europe/Berlin", "21:00", "08:00", "2026-10-24T20:00Z", "2026-10-25T07:00Z"),
        # An end that the change skips is the change; hours inside the gap do not exist.
        ("Europe/Berlin", "01:30", "02:30", "2026-03-29T00:30Z", "2026-03-29T01:00Z"),
        ("Europe/Berlin", "02:00", "03:00", "2026-03-29T01:00Z", "2026-03-29T01:00Z"),
        # A repeated hour is quiet twice: without a break, and with one.
        ("Europe/Berlin", "02:00", "03:00", "2026-10-25T00:15Z", "2026-10-25T02:00Z"),
        ("Europe/Berlin", "02:00", "02:30", "2026-10-25T00:15Z", "2026-10-25T00:30Z"),
        ("Europe/Berlin", "02:00", "02:30", "2026-10-25T01:15Z", "2026-10-25T01:30Z"),
        ("America/New_York", "01:00", "02:00", "2026-11-01T05:59Z", "2026-11-01T07:00Z"),
        ("America/New_York", "00:00", "02:30", "2026-03-08T06:00Z", "2026-03-08T07:00Z"),
        # Half an hour.
        ("Australia/Lord_Howe", "01:30", "02:00", "2026-04-04T14:45Z", "2026-04-04T15:30Z"),
        ("Australia/Lord_Howe", "01:45", "02:15", "2026-10-03T15:20Z", "2026-10-03T15:30Z"),
        ("Asia/Kolkata", "22:15", "22:45", "2026-06-01T16:50Z", "2026-06-01T17:15Z"),
        # A whole day is skipped.
        ("Pacific/Apia", "21:00", "08:00", "2011-12-30T09:30Z", "2011-12-30T18:00Z"),
    ],
)
def test_quiet_hours_go_by_what_the_clock_on_the_wall_shows(zone: str, start: str, end: str, at: str, until: str) -> None:
    oracle = Oracle("u")
    traits = {**TRAITS, "timezone": zone}
    oracle.read(
        Story(
            "u",
            (
                ClockAdvanced(instant(at) - HOUR),
                TraitsReplaced(traits),
                quiet(start, end, "Pacific/Chatham"),
                CampaignActivated(campaign(), 0),
                EventReceived("1", "E", instant(at), instant(at)),
                ClockAdvanced(instant(at) + 9 * DAY),
            ),
        )
    )
    assert [(one.due_at, one.decided_at, one.status) for one in oracle.decisions] == [(instant(at), instant(until), "requested")]


@pytest.mark.parametrize("zone", ["Mars/Base", 5, "", None])
def test_an_unknown_zone_of_a_person_is_that_of_the_policy(zone: object) -> None:
    story = [quiet("14:00", "15:00", "Europe/Berlin"), TraitsReplaced({**TRAITS, "timezone": zone}), activated(campaign())]
    assert ends(*story, event(0)) == [(HOUR, *SENT)]


@pytest.mark.parametrize(
    ("first", "second", "order"),
    [
        ({"key": "b", "priority": 10}, {"key": "a", "priority": 90}, "ab"),
        ({"key": "a", "priority": 10}, {"key": "b", "priority": 90}, "ba"),
        ({"key": "b"}, {"key": "a"}, "ab"),
        ({"key": "b", "trigger": {"event": {"event": "F"}}}, {"key": "a"}, "ba"),
    ],
)
def test_a_freed_slot_goes_to_the_priority_then_the_earlier_due_then_the_key(first: Document, second: Document, order: str) -> None:
    """`x` takes the slot; both rivals wait for it; the other one waits for an hour more."""
    documents = [campaign(**first), campaign(**second), campaign("x", {"event": {"event": "X"}})]
    story = [capped(1, "1h"), activated(*documents), event(0, "X"), event(MINUTE, "F"), event(2 * MINUTE)]
    decisions = [one for one in endings(*story) if one[0] != "x"]
    assert [(one[0], one[2], one[3]) for one in decisions] == [
        (order[0], HOUR, "requested"),
        (order[1], 2 * HOUR, "requested"),
    ]


def test_priority_hold_lets_rivals_meet_and_ends_at_the_expiry() -> None:
    documents = [campaign("a", priority=10), campaign("b", {"event": {"event": "F"}}, priority=90)]
    story = [event(0), event(MINUTE, "F")]
    assert endings(capped(1, "1h"), activated(*documents), *story)[0][:3] == ("a", "E0", 0)
    with_hold = endings(capped(1, "1h", priority_hold="5m"), activated(*documents), event(0), event(0, "F"))
    assert [one[:3] for one in with_hold] == [("b", "F0", 5 * MINUTE), ("a", "E0", HOUR + 5 * MINUTE)]
    expiring = activated(campaign(expires_after="2m"))
    assert ends(PolicyChanged({"priority_hold": "5m"}), expiring, event(0)) == [(2 * MINUTE, *SENT)]


def test_a_plain_trigger_waits_for_earlier_pending_messages_alone() -> None:
    documents = [campaign("a", delay="1h"), campaign("b", {"event": {"event": "F"}})]
    story = [activated(*documents), event(0), event(2 * HOUR, "F", event_id="late"), event(30 * MINUTE, "F", event_id="early")]
    assert endings(*story, end=None) == [("b", "early", 30 * MINUTE, *SENT)]
    assert endings(*story, end=HOUR) == [
        ("b", "early", 30 * MINUTE, *SENT),
        ("a", "E0", HOUR, *SENT),
        ("b", "late", 2 * HOUR, *SENT),
    ]


def test_the_instants_of_a_person_never_go_back() -> None:
    story = [capped(1, "1h"), activated(campaign()), event(HOUR, event_id="first"), event(30 * MINUTE, event_id="second")]
    assert endings(*story) == [("a", "first", HOUR, *SENT), ("a", "second", 2 * HOUR, *SENT)]


@pytest.mark.parametrize(
    ("cap", "sends"),
    [
        ({"channels": ["sms"]}, True),
        ({"channels": ["email"]}, False),
        ({"purposes": ["news"]}, True),
        ({"purposes": ["marketing"]}, False),
        ({"channels": ["email"], "purposes": ["news"]}, True),
    ],
)
def test_a_cap_counts_its_channels_and_purposes(cap: Document, sends: bool) -> None:
    policy = PolicyChanged({"caps": [{"limit": 1, "per": "1d", **cap}]})
    second = ends(policy, activated(campaign(caps="drop")), event(0), event(1))[1]
    assert second == ((1, *SENT) if sends else (1, "dropped", "capped"))


# Outcomes


@pytest.mark.parametrize("outcome", ["FAILED", "SUPPRESSED", "BOUNCED"])
def test_an_outcome_returns_the_slot_once_and_wakes_in_the_order_of_decisions(outcome: str) -> None:
    documents = [
        campaign("a", priority=10, expires_after="7d"),
        campaign("b", priority=90),
        campaign("x", {"event": {"event": "X"}}),
    ]
    story = [capped(1, "1d"), activated(*documents), event(0, "X"), event(MINUTE), clock(5 * MINUTE)]
    report = failed("x", "X0", outcome)
    assert endings(*story, report, end=None)[1:] == [("b", f"E{MINUTE}", 5 * MINUTE, *SENT)]
    assert endings(*story, report, report, end=None)[1:] == [("b", f"E{MINUTE}", 5 * MINUTE, *SENT)]
    assert endings(*story, failed("x", "X0", "SENT"), end=None)[1:] == []
    assert endings(*story, failed("a", "X0", outcome), end=None)[1:] == []


def test_an_outcome_before_the_request_returns_nothing() -> None:
    story = [capped(1, "1d"), activated(campaign(delay="1h")), event(0), failed("a", "E0"), event(1)]
    assert ends(*story, end=DAY) == [(HOUR, *SENT)]


def test_a_woken_message_waits_again_for_quiet_hours() -> None:
    policy = capped(1, "1d", timezone="UTC", quiet_hours={"from": "12:30", "to": "14:00"})
    story = [policy, activated(campaign()), event(0), event(MINUTE), clock(HOUR), failed("a", "E0")]
    assert ends(*story) == [(0, *SENT), (2 * HOUR, *SENT)]


# Consent, profile, address, suppression


def test_an_unsubscribe_while_queued_drops_at_the_decision() -> None:
    story = [quiet("12:00", "13:00"), activated(campaign()), event(0), unsubscribed()]
    assert ends(*story) == [(HOUR, "dropped", "no_consent")]


def test_no_identify_overrides_an_explicit_change() -> None:
    story = [activated(campaign()), unsubscribed(), TraitsReplaced({**TRAITS, "consent": {"email": True}})]
    assert ends(*story, event(0)) == [(0, "dropped", "no_consent")]
    assert ends(*story, unsubscribed(1, granted=True), event(1)) == [(1, *SENT)]


def test_the_newest_explicit_change_counts_whatever_its_arrival() -> None:
    story = [activated(campaign()), unsubscribed(2), unsubscribed(1, granted=True)]
    assert ends(*story, event(0)) == [(0, "dropped", "no_consent")]
    every = [activated(campaign()), unsubscribed(1, granted=True), unsubscribed(2, purpose=None)]
    assert ends(*every, event(0)) == [(0, "dropped", "no_consent")]
    assert ends(activated(campaign()), unsubscribed(2, purpose="news"), event(0)) == [(0, *SENT)]


@pytest.mark.parametrize(
    ("consent", "default", "sends"),
    [
        (True, None, True),
        ({"marketing": True}, None, True),
        ({"news": True}, None, False),
        ({"news": False}, "opt_out", True),
        ({"marketing": "yes"}, None, False),
        ("true", None, False),
        (1, None, False),
        (None, "opt_in", False),
        (None, "opt_out", True),
        (False, "opt_out", False),
    ],
)
def test_consent_of_traits(consent: object, default: str | None, sends: bool) -> None:
    policy = PolicyChanged({"consent": {"email": default}} if default else {})
    story = [policy, TraitsReplaced({**TRAITS, "consent": {"email": consent}}), activated(campaign())]
    assert ends(*story, event(0)) == [(0, *SENT) if sends else (0, "dropped", "no_consent")]


def test_traits_go_by_arrival() -> None:
    story = [activated(campaign(delay="1h")), event(0), TraitsReplaced({**TRAITS, "email": "not an address"})]
    assert ends(*story) == [(HOUR, "dropped", "no_address")]


def test_push_needs_a_device_and_a_webhook_no_address() -> None:
    consent = TraitsReplaced({"consent": {"push": True, "webhook": True}})
    device = EventReceived("d", "D", NOON, NOON, {}, {"device": {"token": "t"}})
    push = activated(campaign(channel="push"))
    assert ends(consent, push, event(0)) == [(0, "dropped", "no_address")]
    assert ends(consent, push, device, event(0)) == [(0, *SENT)]
    assert ends(consent, activated(campaign(channel="webhook")), event(0)) == [(0, *SENT)]


def test_suppressions_and_their_end() -> None:
    story = [activated(campaign()), AddressSuppressed("email", " U@Example.com", "complaint")]
    assert ends(*story, event(0)) == [(0, "dropped", "suppressed")]
    assert ends(*story, AddressSuppressed("email", "u@example.com", None), event(0)) == [(0, *SENT)]
    transactional = activated(campaign(purpose="transactional"))
    assert ends(transactional, AddressSuppressed("email", "u@example.com", "complaint"), event(0)) == [(0, *SENT)]
    assert ends(transactional, AddressSuppressed("email", "u@example.com", "hard_bounce"), event(0)) == [
        (0, "dropped", "suppressed")
    ]


def test_a_transactional_message_skips_consent_quiet_hours_and_caps_and_counts_for_caps() -> None:
    documents = [
        campaign("a", purpose="transactional", holdout={"percent": 100}),
        campaign("b", {"event": {"event": "F"}}, caps="drop"),
    ]
    policy = capped(1, "1d", timezone="UTC", quiet_hours={"from": "12:00", "to": "12:30"}, control_group={"percent": 100})
    story = [policy, activated(*documents), unsubscribed(purpose="transactional"), event(0), event(1), event(HOUR, "F")]
    assert ends(*story) == [(0, *SENT), (1, *SENT), (HOUR, "dropped", "capped")]


# Triggers


def test_a_trigger_counts_from_the_activation_on() -> None:
    document = campaign()
    assert ends(activated(document, at=NOON + 1), event(5, received=0)) == []
    assert ends(activated(document, at=NOON + 1), event(5, received=1)) == [(5, *SENT)]
    assert ends(event(5), activated(document)) == []


@pytest.mark.parametrize("cause", ["DEFINITION", "MERGE"])
def test_definitions_and_merges_trigger_where_the_campaign_wants_it(cause: str) -> None:
    assert ends(activated(campaign(trigger={"enter": "s"})), entered(0, cause=cause)) == []
    assert ends(activated(campaign(trigger={"enter": "s", "on_definition": True})), entered(0, cause=cause)) == [(0, *SENT)]


def test_one_message_for_each_instance() -> None:
    assert ends(activated(campaign()), event(0), event(0), clock(HOUR), event(0)) == [(0, *SENT)]
    assert ends(activated(campaign(delay="1h")), event(0), event(0)) == [(HOUR, *SENT)]
    assert ends(activated(campaign(trigger={"enter": "s"})), entered(0), entered(0), exited(1), entered(0)) == [(0, *SENT)]


def test_a_month_of_imported_history_triggers_nothing() -> None:
    old = [event(-day * DAY, received=0) for day in range(30, 1, -1)]
    assert ends(activated(campaign()), *old) == []
    assert ends(activated(campaign()), event(-DAY - 1, received=0)) == []
    assert ends(activated(campaign()), event(-DAY, received=0)) == [(0, *SENT)]


def test_a_late_event_keeps_its_due_instant_and_is_decided_at_stream_time() -> None:
    story = [activated(campaign(expires_after="2h")), clock(2 * HOUR)]
    assert ends(*story, event(0, received=HOUR)) == [(2 * HOUR, *SENT)]
    assert ends(*story, clock(2 * HOUR + 1), event(0, received=HOUR)) == [(2 * HOUR + 1, "dropped", "expired")]
    decision = oracle_after(*story, event(0, received=HOUR)).decisions[0]
    assert decision.due_at == NOON


def test_a_jump_of_the_clock_expires_nothing_and_keeps_the_order_of_instants() -> None:
    documents = [campaign("a", delay="2h", expires_after="10m"), campaign("b", delay="1h", expires_after="10m")]
    assert endings(activated(*documents), event(0), end=300 * DAY) == [("b", "E0", HOUR, *SENT), ("a", "E0", 2 * HOUR, *SENT)]


def test_while_is_the_membership_just_before_the_event() -> None:
    document = activated(campaign(trigger={"event": {"event": "E"}, "while": "s"}))
    assert ends(document, event(10), entered(9)) == [(10, *SENT)]
    assert ends(document, event(10), entered(10)) == []
    assert ends(document, event(10), entered(8), exited(9)) == []
    assert ends(document, event(10), entered(8), exited(10)) == [(10, *SENT)]
    assert ends(document, event(10), entered(8), exited(10), end=9) == []
    late = event(10, received=30)
    assert ends(document, entered(9), clock(30), late) == [(30, *SENT)]
    assert ends(document, entered(9), exited(20), clock(30), late) == [(30, "dropped", "left_segment")]
    assert ends(document, entered(11), clock(30), late) == []


def test_leaving_the_segment_of_while_cancels() -> None:
    document = activated(campaign(trigger={"event": {"event": "E"}, "while": "s"}, delay="1h"))
    left = exited(HOUR, cause="DEFINITION")
    assert ends(document, entered(0), event(1), left) == [(HOUR, "dropped", "left_segment")]


def test_re_entry_is_allowed_exactly_after_and_failed_messages_count() -> None:
    story = [activated(campaign(reentry={"after": "1h"})), event(0), failed("a", "E0")]
    assert ends(*story, event(HOUR - 1), event(HOUR)) == [(0, *SENT), (HOUR - 1, "dropped", "reentry"), (HOUR, *SENT)]
    once = activated(campaign(reentry="once"))
    assert ends(once, event(0), event(80 * DAY), end=90 * DAY) == [(0, *SENT), (80 * DAY, "dropped", "reentry")]
    held = activated(campaign(reentry="once", holdout={"percent": 100}))
    assert ends(held, event(0), event(1)) == [(0, "held_out", "holdout"), (1, "dropped", "reentry")]


def test_a_dropped_message_does_not_count_for_re_entry() -> None:
    story = [quiet("12:00", "12:30"), activated(campaign(reentry="once", quiet="drop")), event(0), event(HOUR)]
    assert ends(*story) == [(0, "dropped", "quiet_hours"), (HOUR, *SENT)]


def test_dedupe_key_is_shared_for_24_hours() -> None:
    documents = [campaign("a", dedupe_key="k"), campaign("b", {"event": {"event": "F"}}, dedupe_key="k")]
    story = [activated(*documents), event(0), event(DAY - 1, "F"), event(DAY, "F")]
    assert endings(*story) == [
        ("a", "E0", 0, *SENT),
        ("b", f"F{DAY - 1}", DAY - 1, "dropped", "duplicate"),
        ("b", f"F{DAY}", DAY, *SENT),
    ]


def test_the_last_of_more_than_100_pending_messages_goes_the_new_one_included() -> None:
    documents = [campaign("a", delay="1h"), campaign("b", {"event": {"event": "F"}}, delay="1h", priority=90)]
    hundred = [event(number) for number in range(100)]
    assert endings(activated(*documents), *hundred, event(100), end=None) == [("a", "E100", 0, "dropped", "too_many")]
    assert endings(activated(*documents), *hundred, event(99, "F"), end=None) == [("a", "E99", 0, "dropped", "too_many")]
    assert endings(activated(*documents), *hundred, event(100, "F"), end=None) == [("b", "F100", 0, "dropped", "too_many")]
    assert endings(activated(*documents), *hundred, end=None) == []


# States and versions


def test_a_paused_campaign_is_looked_at_every_ten_minutes_after_due() -> None:
    pause, resume = CampaignSwitched("a", "paused"), CampaignSwitched("a", "active")
    story = [activated(campaign(delay="1h", expires_after="30m")), pause, event(0)]
    assert ends(*story, clock(HOUR), resume) == [(HOUR + 10 * MINUTE, *SENT)]
    assert ends(*story, clock(HOUR - 1), resume) == [(HOUR, *SENT)]
    assert ends(*story, clock(HOUR + 10 * MINUTE), resume) == [(HOUR + 20 * MINUTE, *SENT)]
    assert ends(*story, clock(HOUR + 30 * MINUTE - 1), resume) == [(HOUR + 30 * MINUTE, *SENT)]
    assert ends(*story, end=HOUR + 40 * MINUTE - 1) == []
    assert ends(*story) == [(HOUR + 40 * MINUTE, "dropped", "expired")]


def test_a_deferral_that_ends_in_a_pause_is_looked_at_by_the_due_instant() -> None:
    story = [quiet("12:00", "12:45"), activated(campaign()), event(5 * MINUTE), CampaignSwitched("a", "paused"), clock(45 * MINUTE)]
    assert ends(*story, CampaignSwitched("a", "active")) == [(55 * MINUTE, *SENT)]


def test_an_exit_in_a_pause_cancels() -> None:
    document = campaign(trigger={"enter": "s"}, delay="1h")
    story = [activated(document), CampaignSwitched("a", "paused"), entered(0), clock(HOUR + MINUTE), exited(HOUR + 2 * MINUTE)]
    assert ends(*story) == [(HOUR + 2 * MINUTE, "dropped", "left_segment")]


def test_the_archive_drops_what_is_pending_and_triggers_no_more() -> None:
    story = [activated(campaign(delay="1h")), event(0), clock(MINUTE), CampaignSwitched("a", "archived"), event(2 * MINUTE)]
    assert ends(*story) == [(MINUTE, "dropped", "archived")]


def test_an_edit_keeps_due_instants_and_decides_with_the_newest_version() -> None:
    edited = CampaignEdited(campaign(delay="2h", purpose="news"), 2)
    story = [activated(campaign(delay="1h")), unsubscribed(), event(0), edited, event(1)]
    decisions = oracle_after(*story).decisions
    assert [(one.due_at - NOON, one.decided_at - NOON, one.version, one.status) for one in decisions] == [
        (HOUR, HOUR, 2, "requested"),
        (2 * HOUR + 1, 2 * HOUR + 1, 2, "requested"),
    ]


def test_an_edit_of_cancel_counts_for_pending_messages() -> None:
    with_cancel = campaign(delay="1h", cancel={"event": {"event": "C"}})
    story = [event(0), CampaignEdited(campaign(delay="1h"), 2), event(1, "C")]
    assert ends(activated(with_cancel), *story) == [(HOUR, *SENT)]
    story = [event(0), CampaignEdited(with_cancel, 2), event(1, "C")]
    assert ends(activated(campaign(delay="1h")), *story) == [(1, "dropped", "cancelled")]


def test_an_edit_of_the_expiry_counts_for_deferred_messages() -> None:
    story = [quiet("12:00", "13:00"), activated(campaign()), event(0), CampaignEdited(campaign(expires_after="30m"), 2)]
    assert ends(*story) == [(HOUR, "dropped", "expired")]


# Broadcasts


def broadcast(**trigger: str) -> list[Input]:
    return activated(campaign(trigger={"broadcast": "s", **trigger}))


def test_a_broadcast_reaches_members_who_are_still_there() -> None:
    story = [*broadcast(at="2026-06-01T13:00:00Z"), entered(HOUR)]
    assert endings(*story, clock(HOUR), BroadcastListed("a")) == [("a", "2026-06-01T13:00:00Z", HOUR, *SENT)]
    assert ends(*story, BroadcastListed("a"), BroadcastListed("a")) == [(HOUR, *SENT)]
    gone = [*story, clock(HOUR), exited(2 * HOUR), entered(2 * HOUR + 1, 3), clock(3 * HOUR), BroadcastListed("a")]
    assert ends(*gone) == [(3 * HOUR, "dropped", "left_segment")]


def test_a_local_broadcast_goes_by_the_clock_of_the_person() -> None:
    berlin = TraitsReplaced({**TRAITS, "timezone": "Europe/Berlin"})
    story = [berlin, entered(-20 * HOUR), *activated(campaign(trigger={"broadcast": "s", "local": "2026-06-01T16:00"}), at=NOON)]
    assert endings(*story, BroadcastListed("a")) == [("a", "2026-06-01T16:00", 2 * HOUR, *SENT)]
    gone = [*story, exited(1), BroadcastListed("a")]
    assert ends(*gone) == [(1, "dropped", "left_segment")]
    for local, end in (("2026-06-01T13:59", (0, "dropped", "expired")), ("2026-06-01T14:00", (0, *SENT))):
        early = activated(campaign(trigger={"broadcast": "s", "local": local}))
        assert ends(berlin, entered(-20 * HOUR), early, BroadcastListed("a")) == [end]


@pytest.mark.parametrize(
    ("zone", "local", "at"),
    [
        ("Europe/Berlin", "2026-03-29T02:30", "2026-03-29T01:00Z"),
        ("Europe/Berlin", "2026-10-25T02:30", "2026-10-25T00:30Z"),
        ("Australia/Lord_Howe", "2026-10-04T02:15", "2026-10-03T15:30Z"),
        ("Australia/Lord_Howe", "2026-04-05T01:45", "2026-04-04T14:45Z"),
        ("Pacific/Apia", "2011-12-30T09:00", "2011-12-30T10:00Z"),
        ("Pacific/Kiritimati", "2026-06-01T09:00", "2026-05-31T19:00Z"),
        ("Etc/GMT+12", "2026-06-01T09:00", "2026-06-01T21:00Z"),
    ],
)
def test_local_times_in_a_gap_are_its_end_and_ambiguous_ones_the_first(zone: str, local: str, at: str) -> None:
    assert instant_of_local(zone, local) == instant(at)


# Hold-outs and variants


def test_murmur3_has_the_values_of_the_reference_implementation() -> None:
    known = {b"": 0, b"hello": 0x248BFA47, b"hello, world": 0x149BBB7F, b"The quick brown fox jumps over the lazy dog": 0x2E4FF723}
    assert {text: murmur3_32(text) for text in known} == known
    assert rank("one", "u") == 3_164_328_440 % 10_000


def test_a_hold_out_ends_below_its_percentage_and_has_a_variant() -> None:
    place = rank("a:holdout", "u")
    for percent, status in ((place / 100, "requested"), ((place + 1) / 100, "held_out")):
        (decision,) = oracle_after(activated(campaign(holdout={"percent": percent})), event(0)).decisions
        assert (decision.status, decision.variant) == (status, "v")
    control = rank("control", "u")
    for percent, end in ((control / 100, SENT), ((control + 1) / 100, ("held_out", "holdout"))):
        assert ends(PolicyChanged({"control_group": {"percent": percent}}), activated(campaign()), event(0)) == [(0, *end)]


def test_variants_follow_one_another_in_the_order_of_the_document() -> None:
    place = rank("a:variant", "u")
    for weight, variant in ((place / 100, "w"), ((place + 1) / 100, "v")):
        variants = [{"key": "v", "weight": weight}, {"key": "w", "weight": 100 - weight}]
        assert oracle_after(activated(campaign(variants=variants)), event(0)).decisions[0].variant == variant


def test_a_hold_out_comes_last_and_takes_no_slot() -> None:
    documents = [campaign("a", holdout={"percent": 100}), campaign("b", {"event": {"event": "F"}})]
    assert ends(capped(1, "1d"), activated(*documents), event(0), event(1, "F")) == [(0, "held_out", "holdout"), (1, *SENT)]
    dropped = ends(quiet("12:00", "13:00"), activated(campaign(holdout={"percent": 100}, quiet="drop")), event(0))
    assert dropped == [(0, "dropped", "quiet_hours")]


# policy/check


def test_a_check_is_about_a_message_that_is_due_at_its_instant() -> None:
    policy = capped(1, "1h", timezone="UTC", quiet_hours={"from": "14:00", "to": "15:00"})
    story = [policy, activated(campaign(trigger={"enter": "s"}, reentry={"after": "10m"})), entered(0), exited(1)]
    oracle = oracle_after(*story, end=None)
    answers = {
        0: Answer("drop", None, "reentry"),
        10 * MINUTE: Answer("defer", NOON + HOUR, "capped"),
        HOUR: Answer("send"),
        2 * HOUR: Answer("defer", NOON + 3 * HOUR, "quiet_hours"),
        3 * HOUR: Answer("send"),
    }
    assert {at: oracle.check(Check("a", NOON + at)) for at in answers} == answers
    held = oracle_after(activated(campaign(holdout={"percent": 100})), end=None)
    assert held.check(Check("a", NOON)) == Answer("drop", None, "holdout")
