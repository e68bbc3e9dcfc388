"""The decisions about one person's messages, and each boundary in time."""

from typing import Any

import pytest

from starling_common.outcome import Refused, Skipped
from starling_messages.campaigns import Campaigns, fold_definition
from starling_messages.effects import Suppress
from starling_messages.events import event_of
from starling_messages.state import PersonState, UnknownStateFormat, decode_person, encode_person
from starling_policy import address_digest
from tests.unit.messages.stories import DAY_MS, HOUR_MS, MINUTE_MS, NOW, Story, campaign

MARKETING: dict[str, Any] = {"purpose": "marketing"}
CONSENTING = {"email": "ada@example.com", "consent": {"email": True}}


def test_an_entry_requests_a_message_at_once_before_the_clock_has_passed_it() -> None:
    story = Story().define(campaign()).enters("vip", NOW + 5)
    assert story.steps == [("hello", "REQUESTED", None, 5)]
    request = story.requests[0]
    assert (request.address, request.variant, request.device, request.remaining_ms) == ("ada@example.com", "a", None, DAY_MS)


def test_another_segment_an_exit_and_an_earlier_receipt_trigger_nothing() -> None:
    story = Story().define(campaign(), at=NOW)
    assert story.enters("other", NOW + 1).leaves("vip", NOW + 2).enters("vip", NOW + 3, received_at=NOW - 1).steps == []


def test_an_exit_campaign_is_triggered_by_the_exit() -> None:
    story = Story().define(campaign(trigger={"exit": "vip"})).enters("vip", NOW + 1).leaves("vip", NOW + 2)
    assert story.steps == [("hello", "REQUESTED", None, 2)]


@pytest.mark.parametrize(("on_definition", "count"), [(False, 0), (True, 1)])
def test_a_change_by_a_definition_counts_only_on_request(on_definition: bool, count: int) -> None:
    trigger = {"enter": "vip", "on_definition": on_definition}
    assert len(Story().define(campaign(trigger=trigger)).enters("vip", NOW + 1, cause="DEFINITION").requests) == count


def test_a_change_that_is_read_again_triggers_nothing() -> None:
    story = Story().define(campaign()).enters("vip", NOW + 1, sequence=3).enters("vip", NOW + 1, sequence=3)
    assert len(story.requests) == 1


def test_a_delayed_message_waits_for_the_clock() -> None:
    story = Story().define(campaign(delay="2h")).enters("vip", NOW + 1).until(NOW + 2 * HOUR_MS)
    assert story.steps == []
    assert story.until(NOW + 2 * HOUR_MS + 1).steps == [("hello", "REQUESTED", None, 2 * HOUR_MS + 1)]


@pytest.mark.parametrize(
    ("left_ms", "step"),
    [
        pytest.param(2 * HOUR_MS, ("hello", "DROPPED", "left_segment", 2 * HOUR_MS), id="exit at the very due instant"),
        pytest.param(2 * HOUR_MS + 1, ("hello", "REQUESTED", None, 2 * HOUR_MS), id="exit after the due instant"),
        pytest.param(1, ("hello", "DROPPED", "left_segment", 1), id="exit right after the trigger"),
    ],
)
def test_an_exit_up_to_and_at_the_due_instant_cancels(left_ms: int, step: tuple[str, str, str | None, int]) -> None:
    story = Story().define(campaign(delay="2h")).enters("vip", NOW).leaves("vip", NOW + left_ms)
    assert story.until(NOW + 3 * HOUR_MS).steps == [step]
    assert story.reports == ([("SUPPRESSED", "left_segment")] if step[1] == "DROPPED" else [])


def test_an_exit_cancels_also_if_the_person_enters_again() -> None:
    story = Story().define(campaign(delay="2h", reentry="once")).enters("vip", NOW).leaves("vip", NOW + 1).enters("vip", NOW + 2)
    steps = story.until(NOW + 3 * HOUR_MS).steps
    assert steps == [("hello", "DROPPED", "left_segment", 1), ("hello", "REQUESTED", None, 2 * HOUR_MS + 2)]


def test_a_campaign_may_ignore_exits() -> None:
    story = Story().define(campaign(delay="2h", cancel={"left": False})).enters("vip", NOW).leaves("vip", NOW + 1)
    assert [step[1] for step in story.until(NOW + 3 * HOUR_MS).steps] == ["REQUESTED"]


CANCELLED_BY_ORDER = {"event": {"event": "Order Completed"}}


def test_an_event_cancels_by_its_own_time() -> None:
    story = Story().define(campaign(delay="2h", cancel=CANCELLED_BY_ORDER)).enters("vip", NOW).does("Order Completed", NOW + 7)
    assert story.until(NOW + 3 * HOUR_MS).steps == [("hello", "DROPPED", "cancelled", 7)]


def test_a_cancelling_event_may_arrive_before_the_trigger_that_precedes_it() -> None:
    story = Story().define(campaign(delay="2h", cancel=CANCELLED_BY_ORDER)).does("Order Completed", NOW + 7).enters("vip", NOW + 5)
    assert story.until(NOW + 3 * HOUR_MS).steps == [("hello", "DROPPED", "cancelled", 7)]


def test_at_a_tie_the_exit_gives_the_reason() -> None:
    story = Story().define(campaign(delay="2h", cancel=CANCELLED_BY_ORDER)).enters("vip", NOW).does("Order Completed", NOW + 7)
    assert story.leaves("vip", NOW + 7).until(NOW + 3 * HOUR_MS).steps == [("hello", "DROPPED", "left_segment", 7)]


EVENT = campaign(trigger={"event": {"event": "Signed Up"}})
EVENT_WHILE = campaign(trigger={"event": {"event": "Signed Up"}, "while": "vip"})


def test_an_event_triggers_a_message_with_its_properties() -> None:
    story = Story().define(EVENT).does("Signed Up", NOW + 4, plan="pro")
    assert story.steps == [("hello", "REQUESTED", None, 4)]
    assert story.requests[0].event == '{"name":"Signed Up","properties":{"plan": "pro"}}'


def test_an_event_triggers_once() -> None:
    assert len(Story().define(EVENT).does("Signed Up", NOW + 4).does("Signed Up", NOW + 4).requests) == 1


@pytest.mark.parametrize(
    ("entered_ms", "left_ms", "count"),
    [
        pytest.param(9, None, 1, id="member before the event"),
        pytest.param(10, None, 0, id="entered at the instant of the event"),
        pytest.param(5, 10, 1, id="left at the instant of the event"),
        pytest.param(5, 9, 0, id="left before the event"),
    ],
)
def test_while_looks_just_before_the_event(entered_ms: int, left_ms: int | None, count: int) -> None:
    story = Story().define(EVENT_WHILE).does("Signed Up", NOW + 10).enters("vip", NOW + entered_ms)
    if left_ms is not None:
        story.leaves("vip", NOW + left_ms)
    assert story.steps == []  # the segmenter may still decide about an instant before the event
    assert [step[1] for step in story.until(NOW + 20).steps] == ["REQUESTED"] * count


def test_a_month_of_imported_history_triggers_nothing() -> None:
    story = Story().define(EVENT, at=NOW - 60 * DAY_MS)
    for day in range(2, 32):
        story.does("Signed Up", NOW - day * DAY_MS, event_id=str(day), received_at=NOW)
    assert story.until(NOW + DAY_MS).steps == []


@pytest.mark.parametrize(("age_ms", "count"), [(DAY_MS, 1), (DAY_MS + 1, 0)])
def test_a_late_event_is_evaluated_at_the_clock_unless_it_is_older_than_the_expiry(age_ms: int, count: int) -> None:
    story = Story().define(EVENT, at=NOW - 9 * DAY_MS).does("Signed Up", NOW - age_ms, received_at=NOW)
    assert story.steps == [("hello", "REQUESTED", None, 0)] * count


def test_an_imported_event_of_the_future_waits_for_its_time() -> None:
    story = Story().define(EVENT).does("Signed Up", NOW + DAY_MS, received_at=NOW)
    assert story.steps == []
    assert story.define(campaign(key="other")).enters("vip", NOW + 5).steps == [("other", "REQUESTED", None, 5)]
    assert story.until(NOW + DAY_MS).steps[1:] == [("hello", "REQUESTED", None, DAY_MS)]


@pytest.mark.parametrize(("after_ms", "step"), [(0, "REQUESTED"), (-1, "DROPPED")])
def test_reentry_is_allowed_exactly_after_its_time(after_ms: int, step: str) -> None:
    story = Story().define(campaign(reentry={"after": "1d"})).enters("vip", NOW).leaves("vip", NOW + 1)
    story.until(NOW + HOUR_MS).enters("vip", NOW + DAY_MS + after_ms)
    assert [found[1] for found in story.steps] == ["REQUESTED", step]


def test_once_means_once_even_after_the_ledger_has_forgotten() -> None:
    story = Story().define(campaign(reentry="once")).define(campaign(key="other", trigger={"enter": "else"}))
    story.enters("vip", NOW).leaves("vip", NOW + 1).until(NOW + 100 * DAY_MS)
    story.enters("else", NOW + 100 * DAY_MS).until(NOW + 200 * DAY_MS).enters("vip", NOW + 200 * DAY_MS)
    assert [(key, step, reason) for key, step, reason, _ in story.steps][-1] == ("hello", "DROPPED", "reentry")


ONE_A_DAY = {"caps": [{"limit": 1, "per": "1d"}]}


def two_campaigns(**fields: Any) -> Story:
    """Return a person who consents, with two campaigns on two segments."""
    return (
        Story(CONSENTING)
        .define(campaign(**MARKETING, expires_after="7d"))
        .define(campaign(key="other", trigger={"enter": "else"}, **MARKETING, expires_after="7d", **fields))
    )


def test_a_capped_message_is_deferred_to_the_instant_at_which_the_slot_is_free() -> None:
    story = two_campaigns().policy(**ONE_A_DAY).enters("vip", NOW).enters("else", NOW + HOUR_MS)
    assert [step[1] for step in story.until(NOW + DAY_MS - 1).steps] == ["REQUESTED"]
    assert story.until(NOW + DAY_MS).steps[-1] == ("other", "REQUESTED", None, DAY_MS)


def test_a_failure_gives_the_slot_back_and_wakes_the_waiting_message() -> None:
    story = two_campaigns().policy(**ONE_A_DAY).enters("vip", NOW).enters("else", NOW + HOUR_MS).until(NOW + 2 * HOUR_MS)
    story.receives("FAILED", NOW + 2 * HOUR_MS, reason="refused")
    assert story.steps[-2:] == [("hello", "FAILED", "refused", 2 * HOUR_MS), ("other", "REQUESTED", None, 2 * HOUR_MS)]


def test_of_two_messages_at_one_instant_a_failure_gives_one_slot_back() -> None:
    story = Story(CONSENTING).define(campaign(trigger={"event": {"event": "Signed Up"}}, **MARKETING))
    story.policy(caps=[{"limit": 2, "per": "1d"}])
    for i in range(4):
        story.does("Signed Up", NOW, event_id=str(i))
    assert [step[1] for step in story.receives("FAILED", NOW + 1).steps] == ["REQUESTED", "REQUESTED", "FAILED", "REQUESTED"]


@pytest.mark.parametrize(("priority", "first"), [(51, "other"), (49, "hello"), (50, "hello")])
def test_a_free_slot_goes_to_the_highest_priority_then_the_earlier_due_then_the_key(priority: int, first: str) -> None:
    story = two_campaigns(priority=priority).define(
        campaign(key="third", trigger={"enter": "third"}, **MARKETING, expires_after="7d")
    )
    story.policy(**ONE_A_DAY).enters("third", NOW).enters("vip", NOW + 10).enters("else", NOW + 10)
    steps = story.until(NOW + DAY_MS).steps
    assert [(step[0], step[1]) for step in steps] == [("third", "REQUESTED"), (first, "REQUESTED")]


def test_a_message_that_has_no_good_instant_before_its_expiry_is_dropped_at_once() -> None:
    story = two_campaigns().define(campaign(key="other", trigger={"enter": "else"}, **MARKETING, expires_after="1h"), "REVISED")
    story.policy(**ONE_A_DAY).enters("vip", NOW).enters("else", NOW + HOUR_MS)
    assert story.steps[-1] == ("other", "DROPPED", "capped", HOUR_MS)


def test_quiet_hours_defer_to_their_end_across_midnight() -> None:
    story = Story(CONSENTING).define(campaign(**MARKETING)).policy(quiet_hours={"from": "23:00", "to": "08:00"}, timezone="UTC")
    assert story.enters("vip", NOW).until(NOW + 8 * HOUR_MS).steps == [("hello", "REQUESTED", None, 8 * HOUR_MS)]


def test_an_exit_while_deferred_cancels() -> None:
    story = Story(CONSENTING).define(campaign(**MARKETING)).policy(quiet_hours={"from": "23:00", "to": "08:00"}, timezone="UTC")
    assert story.enters("vip", NOW).leaves("vip", NOW + 5).until(NOW + DAY_MS).steps == [("hello", "DROPPED", "left_segment", 5)]


def test_an_unsubscribe_while_queued_drops_the_message() -> None:
    story = Story(CONSENTING).define(campaign(delay="2h", **MARKETING)).enters("vip", NOW)
    assert story.consents(False, NOW + 5).until(NOW + DAY_MS).steps == [("hello", "DROPPED", "no_consent", 2 * HOUR_MS)]


def test_a_stale_identify_after_an_unsubscribe_re_subscribes_no_one() -> None:
    story = Story(CONSENTING).define(campaign(**MARKETING)).consents(False, NOW - 5, purpose="marketing").identifies(**CONSENTING)
    assert story.enters("vip", NOW + 1).steps == [("hello", "DROPPED", "no_consent", 1)]


def test_an_older_explicit_change_does_not_replace_a_newer_one() -> None:
    story = Story(CONSENTING).define(campaign(**MARKETING)).consents(False, NOW - 5).consents(True, NOW - 9)
    assert story.enters("vip", NOW + 1).steps == [("hello", "DROPPED", "no_consent", 1)]


def test_a_suppressed_address_gets_nothing() -> None:
    story = Story(suppressed={f"email:{address_digest('ada@example.com')}": "hard_bounce"}).define(campaign())
    assert story.enters("vip", NOW + 1).steps == [("hello", "DROPPED", "suppressed", 1)]


def test_held_out_people_get_a_variant_and_no_request() -> None:
    story = Story(CONSENTING).define(campaign(holdout={"percent": 100}, **MARKETING)).enters("vip", NOW + 1)
    assert story.steps == [("hello", "HELD_OUT", "holdout", 1)]
    assert story.requests == []
    assert story.state.decided[0].variant == "a"


def test_an_edit_changes_the_waiting_message_and_keeps_its_due_instant() -> None:
    story = Story().define(campaign(delay="2h")).enters("vip", NOW).define(campaign(delay="5h", target="other"), "ACTIVATED")
    story.until(NOW + 2 * HOUR_MS)
    assert [(request.in_force.version, request.in_force.campaign.target) for request in story.requests] == [(2, "other")]


def test_a_paused_campaign_is_looked_at_every_ten_minutes() -> None:
    story = Story().define(campaign()).define(campaign(), "PAUSED").enters("vip", NOW + 1).until(NOW + 25 * MINUTE_MS)
    assert story.steps == []
    story.define(campaign(), "ACTIVATED").until(NOW + HOUR_MS)
    assert story.steps == [("hello", "REQUESTED", None, 30 * MINUTE_MS + 1)]


def test_a_paused_message_expires() -> None:
    story = Story().define(campaign(expires_after="25m")).define(campaign(expires_after="25m"), "PAUSED").enters("vip", NOW)
    assert story.until(NOW + HOUR_MS).steps == [("hello", "DROPPED", "expired", 30 * MINUTE_MS)]


def test_an_archived_campaign_suppresses_what_waits() -> None:
    story = Story().define(campaign(delay="2h")).enters("vip", NOW).define(campaign(delay="2h"), "ARCHIVED").until(NOW + DAY_MS)
    assert story.steps == [("hello", "DROPPED", "archived", 2 * HOUR_MS)]
    assert story.enters("vip", NOW + 2 * DAY_MS, sequence=9).steps[1:] == []


def test_of_too_many_waiting_messages_the_last_in_order_is_dropped() -> None:
    story = Story().define(campaign(trigger={"event": {"event": "Signed Up"}}, delay="1d", expires_after="7d"))
    for i in range(102):
        story.does("Signed Up", NOW + 1000 - i, event_id=str(i))
    assert [(step, reason) for _, step, reason, _ in story.steps] == [("DROPPED", "too_many")] * 2
    assert [one.instance for one in story.state.decided] == ["0", "1"]
    assert len(story.state.pending) == 100


def test_the_first_goal_event_converts_in_the_time_after_the_request() -> None:
    goal = {"event": "Order Completed", "within": "1d", "value": "revenue"}
    story = Story().define(campaign(goal=goal)).enters("vip", NOW + 5).does("Order Completed", NOW + 5, revenue=1.0)
    assert [step[1] for step in story.steps] == ["REQUESTED"]  # at the instant of the request is not after it
    story.does("Order Completed", NOW + 5 + DAY_MS, event_id="e2", revenue=9.5).does("Order Completed", NOW + 99, event_id="e3")
    assert [(step[1], step[3]) for step in story.steps] == [("REQUESTED", 5), ("CONVERTED", 5 + DAY_MS)]
    assert story.state.decided[0].outcomes[0].value == 9.5
    assert story.reports == [("CONVERTED", None)]


def test_a_late_trigger_finds_the_events_that_have_cancelled_it_before() -> None:
    story = Story().define(campaign(trigger={"event": {"event": "Signed Up"}}, delay="1h", cancel=CANCELLED_BY_ORDER))
    story.until(NOW + 2 * HOUR_MS).does("Order Completed", NOW + 5, event_id="o", received_at=NOW + 2 * HOUR_MS)
    story.until(NOW + 3 * HOUR_MS).does("Signed Up", NOW + 3, received_at=NOW + 3 * HOUR_MS)
    assert story.steps == [("hello", "DROPPED", "cancelled", 3 * HOUR_MS)]


def test_an_exit_that_becomes_known_late_drops_at_the_clock() -> None:
    story = Story().define(campaign(delay="2h")).enters("vip", NOW).until(NOW + 30).leaves("vip", NOW + 20)
    assert story.steps == [("hello", "DROPPED", "left_segment", 30)]


def test_a_goal_event_may_arrive_before_the_trigger_that_precedes_it() -> None:
    goal = {"event": "Order Completed", "within": "1d"}
    story = Story().define(campaign(goal=goal)).does("Order Completed", NOW + 9).enters("vip", NOW + 5)
    assert [(step[1], step[3]) for step in story.steps] == [("REQUESTED", 5), ("CONVERTED", 9)]


def test_only_the_first_of_each_outcome_is_progress() -> None:
    story = (
        Story()
        .define(campaign())
        .enters("vip", NOW + 1)
        .receives("SENDING", NOW + 2)
        .receives("SENT", NOW + 3)
        .receives("SENT", NOW + 4)
    )
    assert [(step[1], step[3]) for step in story.steps] == [("REQUESTED", 1), ("SENT", 3)]


def test_a_message_whose_outcome_never_comes_is_unknown_after_ten_minutes() -> None:
    story = Story().define(campaign()).enters("vip", NOW + 1).receives("SENDING", NOW + 2).until(NOW + DAY_MS)
    assert story.steps[-1] == ("hello", "FAILED", "unknown", 10 * MINUTE_MS + 2)
    assert story.reports == [("FAILED", "unknown")]


def test_under_the_event_clock_no_message_becomes_unknown() -> None:
    story = Story(unknown_ms=None).define(campaign()).enters("vip", NOW + 1).receives("SENDING", NOW + 2).until(NOW + DAY_MS)
    assert [step[1] for step in story.steps] == ["REQUESTED"]


def test_a_message_with_too_much_data_is_dropped_and_the_others_go_on() -> None:
    story = Story({"email": "ada@example.com", "bio": "x" * 300_000}).define(campaign()).enters("vip", NOW + 1)
    assert story.steps == [("hello", "DROPPED", "context_too_large", 1)]


def test_the_id_of_a_message_depends_on_nothing_but_what_it_is_for() -> None:
    one = Story().define(campaign()).enters("vip", NOW + 1).requests[0].delivery_id
    other = Story().define(campaign(delay="2h")).enters("vip", NOW + 9).until(NOW + DAY_MS).requests[0].delivery_id
    assert one == other


def test_drafts_targets_without_a_channel_and_invalid_campaigns_change_nothing() -> None:
    def record(**fields: Any) -> dict[str, Any]:
        return {"workspace": "w", "kind": "campaign", "key": "k", "version": 1, "action": "DEFINED", "document": "{}", **fields}

    assert isinstance(fold_definition(Campaigns(), record()), Skipped)
    assert isinstance(fold_definition(Campaigns(), record(kind="target")), Skipped)
    assert isinstance(fold_definition(Campaigns(), record(action="ACTIVATED", recorded_at=0)), Refused)


def test_a_state_of_a_newer_format_is_refused() -> None:
    with pytest.raises(UnknownStateFormat, match="format 9"):
        decode_person(b"\x09" + encode_person(PersonState())[1:])


def test_only_the_first_requested_or_held_out_message_of_a_campaign_is_the_first() -> None:
    story = Story(CONSENTING).define(campaign(**MARKETING)).policy(timezone="Asia/Tokyo").consents(False, NOW - 5)
    story.enters("vip", NOW).leaves("vip", NOW + 1).consents(True, NOW + 2)  # dropped: no exposure
    for hour in (14, 15):  # on both sides of midnight in Tokyo
        story.enters("vip", NOW + hour * HOUR_MS).leaves("vip", NOW + hour * HOUR_MS + 1)
    story.until(NOW + DAY_MS)
    decided = story.state.decided
    assert [(one.status, one.is_first) for one in decided] == [("dropped", False), ("requested", True), ("requested", False)]
    assert [one.day for one in decided] == [20_454, 20_454, 20_455]


def test_a_campaign_with_a_huge_number_as_value_converts_without_one() -> None:
    huge = '{"revenue":1' + "0" * 400 + "}"
    event = event_of((0, NOW, "Order Completed", None, (), huge, "{}", "c", "e1"))
    assert event.number("revenue") is None


OUTCOMES = ["SENT", "DELIVERED", "OPENED", "CLICKED", "BOUNCED", "COMPLAINED", "UNSUBSCRIBED", "FAILED", "SUPPRESSED"]


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_each_outcome_is_a_step_once_and_stays_with_its_message(outcome: str) -> None:
    story = Story().define(campaign()).enters("vip", NOW + 1)
    story.receives(outcome, NOW + 2, reason="why").receives(outcome, NOW + 3)
    assert story.steps[1:] == [("hello", outcome, "why", 2)]
    assert [(one.outcome, one.at, one.reason) for one in story.state.decided[0].outcomes] == [(outcome, NOW + 2, "why")]


def bouncing(*outcomes: str | None) -> Story:
    """Return a story of one message for each outcome, an hour apart; a digest stands for a soft bounce of that address."""
    story = Story().define(campaign())
    for number, outcome in enumerate(outcomes):
        at = NOW + number * HOUR_MS
        story.enters("vip", at + 1).leaves("vip", at + 2)
        if outcome is None:
            continue
        soft = outcome if outcome.islower() else None
        story.receives("BOUNCED" if soft else outcome, at + 3, number, soft_bounce=soft)
    return story


def suppressed(story: Story) -> list[tuple[str, str, str]]:
    return [(one.channel, one.digest, one.kind) for one in story.effects if isinstance(one, Suppress)]


def test_five_soft_bounces_in_a_row_suppress_the_address() -> None:
    assert suppressed(bouncing(*["ada"] * 4)) == []
    assert suppressed(bouncing(*["ada"] * 5)) == [("email", "ada", "soft_bounces")]
    assert suppressed(bouncing("ada", "ada", None, "SENT", "ada", "FAILED", "ada", "ada")) == [("email", "ada", "soft_bounces")]


@pytest.mark.parametrize("arrived", ["DELIVERED", "OPENED", "CLICKED"])
def test_a_message_that_arrives_ends_the_row(arrived: str) -> None:
    assert suppressed(bouncing("ada", "ada", "ada", "ada", arrived, "ada")) == []


def test_the_bounces_of_another_address_and_of_a_repeated_report_do_not_count() -> None:
    assert suppressed(bouncing("ada", "ada", "bob", "bob", "ada", "ada")) == []
    story = bouncing(*["ada"] * 4)
    for _ in range(2):
        story.receives("BOUNCED", NOW + 9 * HOUR_MS, 3, soft_bounce="ada")
    assert suppressed(story) == []
