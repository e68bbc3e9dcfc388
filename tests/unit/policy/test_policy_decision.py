"""The checks of a decision, and each boundary in time."""

from typing import Any

import pytest

from starling_policy import CHECKS, REASONS, ConsentChange, Defer, Drop, Message, MessageRules, Suppression, address_digest
from starling_policy.bounds import MAX_CANCELLATIONS, MAX_CONSENT_CHANGES, MAX_DEVICES, MAX_MESSAGES, MAX_SUPPRESSIONS
from tests.unit.policy.making import DAY_MS, HOUR_MS, NOW, decision, message, outcome, past, person, policy

ONE_A_DAY = policy(caps=[{"limit": 1, "per": "1d"}])
QUIET_NOW = policy(quiet_hours={"from": "23:00", "to": "01:00"})


def test_a_message_that_nothing_prevents_is_sent() -> None:
    found = decision(message(), person(), ONE_A_DAY)
    assert outcome(message(), person(), ONE_A_DAY) == "send"
    assert found.reasons == ()
    assert [check.name for check in found.checks] == [function.__name__ for function in CHECKS]


@pytest.mark.parametrize(("late_ms", "wanted"), [(0, "send"), (DAY_MS, "send"), (DAY_MS + 1, "expired")])
def test_a_message_expires_after_due_and_expires_after_and_not_at_it(late_ms: int, wanted: str) -> None:
    assert outcome(message(), now=NOW + late_ms) == wanted


@pytest.mark.parametrize(
    ("exit_ms", "now_ms", "wanted"),
    [
        pytest.param(0, 0, "left_segment", id="exit at the very due instant"),
        pytest.param(1, 0, "send", id="exit after the due instant"),
        pytest.param(1, 1, "left_segment", id="exit while deferred"),
        pytest.param(-HOUR_MS, 0, "send", id="exit at the trigger"),
        pytest.param(-HOUR_MS + 1, 0, "left_segment", id="exit right after the trigger"),
    ],
)
def test_an_exit_cancels_in_the_trigger_exclusive_to_the_decision_inclusive(exit_ms: int, now_ms: int, wanted: str) -> None:
    assert outcome(message(exits=(NOW + exit_ms,)), now=NOW + now_ms) == wanted


@pytest.mark.parametrize(
    ("exits", "events", "wanted"),
    [
        pytest.param((), (0,), "cancelled", id="event at the due instant"),
        pytest.param((-5,), (-6,), "cancelled", id="the event was earlier"),
        pytest.param((-6,), (-5,), "left_segment", id="the exit was earlier"),
        pytest.param((-5,), (-5,), "left_segment", id="both at one instant"),
        pytest.param((-5, -9), (-7,), "left_segment", id="the earliest of several"),
        pytest.param((1,), (0,), "cancelled", id="an exit that has not happened"),
    ],
)
def test_the_earliest_cancellation_is_the_reason(exits: tuple[int, ...], events: tuple[int, ...], wanted: str) -> None:
    one = message(exits=tuple(NOW + ms for ms in exits), events=tuple(NOW + ms for ms in events))
    assert outcome(one) == wanted


def test_an_exit_that_is_known_in_advance_is_the_next_change() -> None:
    assert decision(message(exits=(NOW + 7,))).next_change_at == NOW + 7


@pytest.mark.parametrize(
    ("reentry", "ago_ms", "wanted"),
    [
        ("always", 0, "send"),
        ("once", 300 * DAY_MS, "reentry"),
        ({"after": "30d"}, 30 * DAY_MS - 1, "reentry"),
        ({"after": "30d"}, 30 * DAY_MS, "send"),
    ],
)
def test_re_entry_is_allowed_exactly_after_later(reentry: Any, ago_ms: int, wanted: str) -> None:
    earlier = past(NOW - ago_ms, "win-back")
    assert outcome(message(reentry=reentry), person(earlier)) == wanted
    assert outcome(message(reentry=reentry), person(earlier._replace(slot_returned=True))) == wanted
    assert outcome(message(reentry=reentry), person(earlier._replace(held_out=True))) == wanted
    assert outcome(message(reentry=reentry), person(earlier._replace(campaign="other"))) == "send"


@pytest.mark.parametrize(("ago_ms", "wanted"), [(0, "duplicate"), (DAY_MS - 1, "duplicate"), (DAY_MS, "send")])
def test_a_dedupe_key_is_seen_for_exactly_24_hours_across_campaigns(ago_ms: int, wanted: str) -> None:
    one, earlier = message(dedupe_key="back-in-stock"), past(NOW - ago_ms, dedupe_key="back-in-stock")
    assert outcome(one, person(earlier)) == wanted
    assert outcome(one, person(earlier._replace(held_out=True))) == wanted
    assert outcome(one, person(earlier._replace(dedupe_key="other"))) == "send"
    assert outcome(message(), person(earlier)) == "send"


@pytest.mark.parametrize(
    ("ago_ms", "wanted"),
    [(0, f"capped until {NOW + DAY_MS}"), (DAY_MS - 1, f"capped until {NOW + 1}"), (DAY_MS, "send")],
)
def test_the_slot_of_a_cap_is_free_at_exactly_per(ago_ms: int, wanted: str) -> None:
    assert outcome(message(), person(past(NOW - ago_ms)), ONE_A_DAY) == wanted


@pytest.mark.parametrize("caps", ["defer", "drop"])
def test_a_cap_of_0_drops_at_once(caps: str) -> None:
    found = decision(message(caps=caps), person(), policy(caps=[{"limit": 0, "per": "1d"}]))
    assert found.outcome == Drop("capped")
    assert found.next_change_at == NOW + DAY_MS + 1  # then it is expired


def test_a_slot_that_comes_too_late_drops_when_that_is_known() -> None:
    taken = person(past(NOW - DAY_MS + 2 * HOUR_MS))
    assert outcome(message(expires_after="2h"), taken, ONE_A_DAY) == f"capped until {NOW + 2 * HOUR_MS}"
    assert outcome(message(expires_after="1h"), taken, ONE_A_DAY) == "capped"
    assert outcome(message(caps="drop"), taken, ONE_A_DAY) == "capped"


def test_a_slot_is_taken_by_requested_messages_only() -> None:
    assert outcome(message(), person(past(NOW, slot_returned=True)), ONE_A_DAY) == "send"
    assert outcome(message(), person(past(NOW, held_out=True)), ONE_A_DAY) == "send"


def test_a_cap_counts_its_channels_and_purposes_and_transactional_messages_without_a_list() -> None:
    transactional = past(NOW, purpose="transactional")
    assert outcome(message(), person(transactional), ONE_A_DAY) == f"capped until {NOW + DAY_MS}"
    assert outcome(message(purpose="transactional"), person(past(NOW)), ONE_A_DAY) == "send"
    narrow = policy(caps=[{"limit": 1, "per": "1d", "channels": ["email"], "purposes": ["marketing"]}])
    assert outcome(message(), person(transactional), narrow) == "send"
    assert outcome(message(), person(past(NOW, channel="sms")), narrow) == "send"
    assert outcome(message(channel="sms"), person(past(NOW)), narrow) == "send"
    assert outcome(message(), person(past(NOW)), narrow) == f"capped until {NOW + DAY_MS}"


def test_of_several_full_caps_the_last_free_slot_counts() -> None:
    rules = policy(caps=[{"limit": 2, "per": "1d"}, {"limit": 1, "per": "2h"}])
    whom = person(past(NOW - 20 * HOUR_MS), past(NOW - HOUR_MS))
    assert outcome(message(), whom, rules) == f"capped until {NOW + 4 * HOUR_MS}"


def test_quiet_hours_and_caps_share_one_wait() -> None:
    rules = policy(quiet_hours={"from": "23:00", "to": "01:00"}, caps=[{"limit": 1, "per": "1d"}])
    whom = person(past(NOW - 20 * HOUR_MS))
    assert outcome(message(caps="drop"), whom, rules) == f"quiet_hours until {NOW + 4 * HOUR_MS}"
    at_noon = NOW + 12 * HOUR_MS
    whom = person(past(at_noon - 12 * HOUR_MS + 1))  # its slot is free a millisecond after midnight, in quiet hours
    assert outcome(message(at_noon, quiet="drop"), whom, rules) == f"capped until {NOW + 25 * HOUR_MS}"


def test_quiet_hours_drop_where_the_campaign_asks_for_it_or_nothing_else_is_in_time() -> None:
    assert outcome(message(), rules=QUIET_NOW) == f"quiet_hours until {NOW + HOUR_MS}"
    assert outcome(message(expires_after="1h"), rules=QUIET_NOW) == f"quiet_hours until {NOW + HOUR_MS}"
    assert outcome(message(expires_after="59m"), rules=QUIET_NOW) == "quiet_hours"
    assert outcome(message(quiet="drop"), rules=QUIET_NOW) == "quiet_hours"


@pytest.mark.parametrize(
    ("traits", "changes", "wanted"),
    [
        pytest.param({}, [], "no_consent", id="unsaid means no"),
        pytest.param({"consent": {"email": True}}, [], "send", id="trait of the channel"),
        pytest.param({"consent": {"email": {"marketing": True}}}, [], "send", id="trait of the purpose"),
        pytest.param({"consent": {"email": {"news": True}}}, [], "no_consent", id="trait of another purpose"),
        pytest.param({"consent": {"email": "true"}}, [], "no_consent", id="a trait that is no truth value"),
        pytest.param({"consent": {"email": 1}}, [], "no_consent", id="a number is unsaid"),
        pytest.param({"consent": True}, [], "no_consent", id="a trait without channels"),
        pytest.param({"consent": {"email": True}}, [("email", None, False, 1)], "no_consent", id="explicit beats the trait"),
        pytest.param({}, [("email", "marketing", True, 1)], "send", id="explicit of the purpose"),
        pytest.param({}, [("email", "news", True, 1)], "no_consent", id="explicit of another purpose"),
        pytest.param({}, [("sms", None, True, 1)], "no_consent", id="explicit of another channel"),
        pytest.param({}, [("email", None, True, 2), ("email", "marketing", False, 1)], "send", id="the newest explicit"),
        pytest.param({}, [("email", None, True, 1), ("email", "marketing", False, 1)], "no_consent", id="a tie refuses"),
    ],
)
def test_consent(traits: dict[str, Any], changes: list[Any], wanted: str) -> None:
    whom = person(traits=traits, consent_changes=tuple(ConsentChange(*change) for change in changes))
    assert outcome(message(), whom, policy(consent={})) == wanted
    assert outcome(message(purpose="transactional"), whom, policy(consent={})) == "send"


def test_opt_out_makes_unsaid_consent_a_yes_and_an_explicit_no_stays() -> None:
    assert outcome(message(), rules=policy(consent={"email": "opt_out"})) == "send"
    assert outcome(message(), person(traits={"consent": {"email": False}}), policy(consent={"email": "opt_out"})) == "no_consent"


@pytest.mark.parametrize(
    "address", ["ada@example.com", " ada@example.com ", "a.b+c@mail.example.co.uk", "ada@exämple.de", "o'neill@example.com"]
)
def test_a_well_formed_address(address: str) -> None:
    assert outcome(message(), person(traits={"email": address})) == "send"


@pytest.mark.parametrize(
    "address",
    [None, 7, "", "ada", "ada@", "@example.com", "ada@example", "a b@example.com", "ada@example.com\r\nBcc: b@example.com",
     "ada@example.com,b@example.com", "a@b@example.com", "a" * 65 + "@example.com", "a@" + "b." * 200 + "com"],
)  # fmt: skip
def test_a_malformed_address(address: object) -> None:
    assert outcome(message(), person(traits={"email": address})) == "no_address"


def test_each_channel_has_its_address() -> None:
    assert outcome(message(channel="sms"), person(traits={"phone": "0151 1234"})) == "no_address"
    assert outcome(message(channel="push")) == "no_address"
    assert outcome(message(channel="push"), person(devices={"push": ("token",)})) == "send"
    assert outcome(message(channel="ntfy", purpose="transactional"), person(traits={"email": None})) == "send"


@pytest.mark.parametrize(
    ("kind", "purpose", "wanted"),
    [
        ("hard_bounce", "marketing", "suppressed"),
        ("hard_bounce", "transactional", "suppressed"),
        ("uploaded", "transactional", "suppressed"),
        ("complaint", "marketing", "suppressed"),
        ("complaint", "transactional", "send"),
    ],
)
def test_suppression_by_the_trimmed_lower_case_address(kind: str, purpose: str, wanted: str) -> None:
    stopped = Suppression("email", address_digest(" Ada@Example.COM"), kind)
    assert outcome(message(purpose=purpose), person(suppressions=(stopped,))) == wanted
    assert outcome(message(purpose=purpose), person(suppressions=(stopped._replace(channel="sms"),))) == "send"
    assert outcome(message(purpose=purpose), person(suppressions=(stopped,), traits={"email": "b@example.com"})) == "send"


def test_one_device_that_is_not_suppressed_is_enough() -> None:
    first = Suppression("push", address_digest("one"), "hard_bounce")
    both = (first, first._replace(digest=address_digest("two")))
    devices = {"push": ("one", "two")}
    assert outcome(message(channel="push"), person(devices=devices, suppressions=(first,))) == "send"
    assert outcome(message(channel="push"), person(devices=devices, suppressions=both)) == "suppressed"


def test_the_first_failed_check_decides_and_all_are_reported() -> None:
    rules = policy(
        quiet_hours={"from": "23:00", "to": "01:00"}, caps=[{"limit": 1, "per": "1d"}], control_group={"percent": 100}, consent={}
    )
    one = message(exits=(NOW,), reentry="once", dedupe_key="k")
    whom = person(past(NOW, "win-back", dedupe_key="k"), traits={"email": None})
    found = decision(one, whom, rules, NOW + DAY_MS + 1 - HOUR_MS)
    assert found.outcome == Drop("left_segment")
    found = decision(one, whom, rules, NOW + DAY_MS + 1)
    assert found.outcome == Drop("expired")
    assert found.next_change_at is None
    assert found.reasons == ("expired", "left_segment", "reentry", "no_address", "no_consent", "quiet_hours", "holdout")
    assert [REASONS.index(reason) for reason in found.reasons] == sorted(REASONS.index(reason) for reason in found.reasons)


def test_transactional_messages_skip_consent_quiet_hours_caps_and_holdout() -> None:
    rules = policy(quiet_hours={"from": "23:00", "to": "01:00"}, caps=[{"limit": 0, "per": "1d"}], control_group={"percent": 100})
    one = message(purpose="transactional", holdout={"percent": 100})
    assert outcome(one, rules=rules) == "send"
    skipped = {check.name for check in decision(one, rules=rules).checks if check.outcome == "skipped"}
    assert {"consent", "quiet_hours", "caps", "holdout"} <= skipped


def test_a_message_without_a_campaign() -> None:
    one = Message(MessageRules("email"), NOW)
    assert outcome(one) == "send"
    assert outcome(one, rules=policy(control_group={"percent": 100})) == "holdout"


def test_a_deferral_states_the_next_change_before_its_end() -> None:
    rules = policy(quiet_hours={"from": "23:00", "to": "01:00"}, caps=[{"limit": 1, "per": "1d"}])
    whom = person(past(NOW - 20 * HOUR_MS))
    found = decision(message(), whom, rules)
    assert (found.outcome, found.next_change_at) == (Defer(NOW + 4 * HOUR_MS, "quiet_hours"), NOW + HOUR_MS)
    found = decision(message(), whom, rules, NOW + HOUR_MS)
    assert (found.outcome, found.next_change_at) == (Defer(NOW + 4 * HOUR_MS, "capped"), NOW + 4 * HOUR_MS)


def test_a_decision_before_the_due_instant_or_before_the_history_is_refused() -> None:
    with pytest.raises(ValueError, match="is due at"):
        decision(message(), now=NOW - 1)
    with pytest.raises(ValueError, match="decide in the order of instants"):
        decision(message(), person(past(NOW + 1)))


def test_inputs_are_bounded() -> None:
    with pytest.raises(ValueError, match="past messages: at most"):
        person(*[past(NOW)] * (MAX_MESSAGES + 1))
    with pytest.raises(ValueError, match="changes of consent: at most"):
        person(consent_changes=(ConsentChange("email", None, True, 1),) * (MAX_CONSENT_CHANGES + 1))
    with pytest.raises(ValueError, match="suppressions: at most"):
        person(suppressions=(Suppression("email", "", "uploaded"),) * (MAX_SUPPRESSIONS + 1))
    with pytest.raises(ValueError, match="devices of push: at most"):
        person(devices={"push": ("token",) * (MAX_DEVICES + 1)})
    with pytest.raises(ValueError, match="exits: at most"):
        message(exits=(NOW,) * (MAX_CANCELLATIONS + 1))
    with pytest.raises(ValueError, match="cancelling events: at most"):
        message(events=(NOW,) * (MAX_CANCELLATIONS + 1))


def test_a_full_history_loses_its_oldest_message() -> None:
    full = person(*(past(NOW - n) for n in range(MAX_MESSAGES))).history
    after = list(full.with_message(past(NOW + 1)).newest_first())
    assert (after[0].at, after[-1].at, len(after)) == (NOW + 1, NOW - MAX_MESSAGES + 2, MAX_MESSAGES)
