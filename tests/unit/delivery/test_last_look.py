"""The last look before an attempt, and the step after it."""

import json
from typing import Any

import pytest

from starling_common.outcome import Done, Refused
from starling_common.time.instants import wall_clock_ms
from starling_delivery.channel import Again, Bounced, Delivered, Impossible, Message, Park, Unknown
from starling_delivery.channels.email.channel import data_refused, recipient_refused
from starling_delivery.messages.definitions import Definitions, fold_definition
from starling_delivery.messages.last_look import CAMPAIGN_PAUSED, NOT_READ, LastLook
from starling_delivery.messages.refusals import CONSENT_MS, RecentConsent, Suppressions, fold_consent, fold_suppression
from starling_delivery.policy import Schedule, Step, after_message, postponed
from starling_policy import address_digest
from tests.unit.delivery.messages import definition, definitions, mail_campaign, mail_request, smtp_target

NOW = wall_clock_ms()
SCHEDULE = Schedule((5.0, 300.0, 1800.0), 14_400.0)


def suppression(address: str, kind: str | None, **more: Any) -> dict[str, Any]:
    return {"workspace": "default", "channel": "email", "digest": address_digest(address), "kind": kind, "changed_at": NOW} | more


def consent(granted: bool, purpose: str | None = "marketing", at: int = NOW, **more: Any) -> dict[str, Any]:
    return {
        "workspace": "default", "user_id": "ada", "channel": "email", "purpose": purpose, "granted": granted, "changed_at": at,
    } | more  # fmt: skip


def look(
    request: dict[str, Any] | None = None,
    known: Definitions | None = None,
    suppressed: tuple[dict[str, Any], ...] = (),
    changes: tuple[dict[str, Any], ...] = (),
    **more: Any,
) -> Message | Step | Park:
    suppressions, recent = Suppressions("email"), RecentConsent("email")
    for record in suppressed:
        fold_suppression(suppressions, b"", record)
    for record in changes:
        fold_consent(recent, b"", record)
    looked = LastLook(known or definitions(), suppressions, recent)
    return looked({**mail_request(), **more} if request is None else request, NOW)


def reason(looked: Message | Step | Park) -> tuple[str | None, str | None]:
    assert isinstance(looked, Step)
    return looked.outcome, looked.detail


def test_a_message_is_rendered_for_the_target_of_its_campaign() -> None:
    found = look()
    assert isinstance(found, Message)
    assert dict(found.content) == {"subject": "Hello Ada", "html": "<p>Hello Ada</p>", "text": "Hello Ada"}
    assert (found.target_key, found.purpose, found.message_id) == ("main-smtp", "marketing", "delivery-of-ada")


def test_the_version_of_the_request_is_rendered_and_a_newer_one_is_waited_for() -> None:
    known = definitions()
    newer = mail_campaign()
    newer["variants"][0]["content"]["subject"] = "New"
    fold_definition(known, definition("campaign", newer, "ACTIVATED", 2))
    first, second = look(known=known), look(known=known, version=2)
    assert isinstance(first, Message)
    assert isinstance(second, Message)
    assert (first.content["subject"], second.content["subject"]) == ("Hello Ada", "New")
    assert look(known=known, version=3) is NOT_READ
    assert look(known=Definitions()) is NOT_READ


def test_only_suppression_holds_a_test_back_and_its_subject_is_marked() -> None:
    known = definitions()
    fold_definition(known, definition("campaign", mail_campaign(), "PAUSED"))
    found = look(known=known, changes=(consent(False),), is_test=True)
    assert isinstance(found, Message)
    assert found.content["subject"] == "[Test] Hello Ada"
    assert found.content["text"] == "Hello Ada"
    for kind in ("hard_bounce", "complaint"):
        stopped = look(suppressed=(suppression("ada@customers.example.net", kind),), purpose="transactional", is_test=True)
        assert reason(stopped) == ("SUPPRESSED", "suppressed")


def test_states_of_the_campaign_and_the_target() -> None:
    known = definitions()
    fold_definition(known, definition("campaign", mail_campaign(), "PAUSED"))
    assert look(known=known) is CAMPAIGN_PAUSED
    fold_definition(known, definition("campaign", mail_campaign(), "ACTIVATED"))
    fold_definition(known, definition("target", smtp_target(), "ARCHIVED", 2))
    assert reason(look(known=known)) == ("SUPPRESSED", "target_archived")
    fold_definition(known, definition("campaign", mail_campaign(), "ARCHIVED"))
    assert reason(look(known=known)) == ("SUPPRESSED", "archived")


def test_an_expired_message_fails_whatever_else() -> None:
    assert reason(look(expires_at=NOW - 1, known=Definitions())) == ("FAILED", "expired")
    assert isinstance(look(expires_at=NOW), Message)


@pytest.mark.parametrize("purpose", ["marketing", "transactional"])
@pytest.mark.parametrize("kind", ["hard_bounce", "complaint", "uploaded", "stop"])
def test_a_suppressed_address_gets_nothing_but_transactional_after_a_complaint(kind: str, purpose: str) -> None:
    found = look(suppressed=(suppression(" ADA@customers.example.net", kind),), purpose=purpose)
    if (kind, purpose) == ("complaint", "transactional"):
        assert isinstance(found, Message)
    else:
        assert reason(found) == ("SUPPRESSED", "suppressed")


def test_a_suppression_ends_and_holds_in_its_workspace_and_channel_only() -> None:
    address = "ada@customers.example.net"
    for records in (
        (suppression(address, "uploaded"), suppression(address, None)),
        (suppression(address, "uploaded", workspace="other"),),
        (suppression(address, "uploaded", channel="sms"),),
    ):
        assert isinstance(look(suppressed=records), Message)


@pytest.mark.parametrize(
    ("changes", "is_refused"),
    [
        ((consent(False),), True),
        ((consent(False, None),), True),
        ((consent(False, at=NOW - 1), consent(True, None)), False),
        ((consent(True, None, NOW - 1), consent(False)), True),
        ((consent(False, "news"),), False),
        ((consent(False, user_id="bob"),), False),
        ((consent(False, channel="sms"),), False),
        ((consent(False, at=NOW - CONSENT_MS),), False),
        ((consent(False), consent(True, at=NOW - 5)), True),
    ],
)
def test_the_newest_recent_change_of_consent_decides(changes: tuple[dict[str, Any], ...], is_refused: bool) -> None:
    found = look(changes=changes)
    assert (reason(found) == ("SUPPRESSED", "no_consent")) if is_refused else isinstance(found, Message)
    assert isinstance(look(changes=changes, purpose="transactional"), Message)


def test_an_unsubscribe_while_retrying_stops_the_next_attempt() -> None:
    """The first attempt was made with consent; the person unsubscribes while the message waits in a tier."""
    known = RecentConsent("email")
    looked = LastLook(definitions(), Suppressions("email"), known)
    first = mail_request()
    assert isinstance(looked(first, NOW), Message)
    retry = after_message(first, Again("421 later", 421), SCHEDULE, NOW, 0.5).retry
    assert retry is not None
    fold_consent(known, b"", consent(False, at=NOW + 1))
    due = retry["not_before"]
    assert (retry["attempt"], reason(looked(retry, due))) == (2, ("SUPPRESSED", "no_consent"))
    assert isinstance(looked({**retry, "user_id": "bob"}, due), Message)


@pytest.mark.parametrize("purpose", ["marketing", "news"])
def test_an_unsubscribe_during_a_broadcast_stops_the_queued_messages_of_its_purpose(purpose: str) -> None:
    campaign = mail_campaign(key="sale", trigger={"broadcast": "vips", "at": "2026-01-01T01:00:00Z"}, purpose=purpose)
    known = definitions(definition("target", smtp_target()), definition("campaign", campaign, "ACTIVATED"))
    found = look(known=known, changes=(consent(False),), campaign="sale", purpose=purpose)
    assert (reason(found) == ("SUPPRESSED", "no_consent")) if purpose == "marketing" else isinstance(found, Message)


def test_templates_without_a_value_suppress_and_failing_ones_fail() -> None:
    assert reason(look(context=json.dumps({"traits": {}, "event": None}))) == ("SUPPRESSED", "template_missing")
    outcome, detail = reason(look(context=json.dumps({"traits": {"name": "a\nBcc: eve@example.net"}, "event": None})))
    assert outcome == "FAILED"
    assert (detail or "").startswith("template_error: subject")


def test_definitions_that_cannot_be_parsed_change_nothing() -> None:
    known = definitions()
    assert isinstance(fold_definition(known, definition("campaign", {"key": "win-back"}, "ACTIVATED", 2)), Refused)
    assert isinstance(fold_definition(known, definition("policy", {"key": "policy"})), Done)
    assert isinstance(look(known=known), Message)


def step(answer: Any, **more: Any) -> Step:
    return after_message(mail_request(**more), answer, SCHEDULE, NOW, 0.5)


def test_what_may_have_been_taken_is_never_retried() -> None:
    unknown = step(Unknown("lost"))
    assert (unknown.outcome, unknown.detail, unknown.retry, unknown.dead) == ("FAILED", "unknown", None, None)
    assert step(Delivered(250)).outcome == "SENT"
    bounced = step(Bounced("550 no", 550))
    assert (bounced.outcome, bounced.suppress, bounced.retry) == ("BOUNCED", "hard_bounce", None)
    full = step(Bounced("552 full", 552, is_hard=False))
    assert (full.suppress, full.soft_bounce, bounced.soft_bounce) == (None, True, False)
    assert step(Impossible("no")).dead == "no"


def test_retries_end_at_the_limit_and_always_at_the_expiry() -> None:
    again = step(Again("later"), first_attempt_at=NOW - 86_400_000, expires_at=NOW + 10_000)
    assert again.retry is not None
    assert (again.outcome, again.tier_seconds, again.retry["attempt"], again.retry["first_attempt_at"]) == ("RETRYING", 5.0, 2, NOW)
    assert reason(step(Again("later"), expires_at=NOW + 4_000)) == ("FAILED", "expired")
    assert reason(step(Again("later"), attempt=3, expires_at=NOW + 60_000)) == ("FAILED", "expired")
    late = step(Again("later"), attempt=9, first_attempt_at=NOW - 14_000_000, expires_at=NOW + 86_400_000)
    assert (late.outcome, late.retry) == ("FAILED", None)
    assert "given up after 9 attempts" in (late.dead or "")


def test_a_message_that_was_never_attempted_waits_until_it_expires() -> None:
    waits = postponed(mail_request(first_attempt_at=NOW - 80_000_000, expires_at=NOW + 86_400_000), "paused", 2, SCHEDULE, NOW, 0.5)
    assert (waits.tier_seconds, waits.postponed, waits.dead) == (1800.0, True, None)
    assert reason(postponed(mail_request(expires_at=NOW + 1_000), "paused", 0, SCHEDULE, NOW, 0.5)) == ("FAILED", "expired")


@pytest.mark.parametrize(
    ("code", "text", "answer"),
    [
        (550, "5.1.1 no such user", Bounced("550 5.1.1 no such user", 550)),
        (550, "no", Bounced("550 no", 550)),
        (552, "5.2.2 full", Bounced("552 5.2.2 full", 552, is_hard=False)),
        (550, "5.7.1 relaying denied", Again("550 5.7.1 relaying denied", 550)),
        (450, "4.2.0 greylisted", Again("450 4.2.0 greylisted", 450, is_of_target=False)),
        (451, "4.7.0 too many", Again("451 4.7.0 too many", 451)),
    ],
)
def test_answers_to_a_recipient(code: int, text: str, answer: Any) -> None:
    assert recipient_refused(code, text) == answer


def test_answers_to_the_content() -> None:
    assert data_refused(452, "later") == Again("452 later", 452, is_of_target=False)
    assert data_refused(451, "4.3.2 overloaded") == Again("451 4.3.2 overloaded", 451)
    assert data_refused(554, "spam") == Impossible("554 spam", 554)


def test_the_content_gets_the_link_to_unsubscribe_of_its_message_and_waits_without_one() -> None:
    known, campaign = definitions(), mail_campaign()
    campaign["variants"][0]["content"]["text"] = "Stop: {{ unsubscribe_url }}"
    fold_definition(known, definition("campaign", campaign, "ACTIVATED", 2))
    request = {**mail_request(), "version": 2}

    def looked(link: str | None, held: Park | None = None) -> Message | Step | Park:
        whole = LastLook(known, Suppressions("email"), RecentConsent("email"), lambda _: held, lambda _: link)
        return whole(request, NOW)

    found = looked("https://t.example.com/u/x")
    assert isinstance(found, Message)
    assert found.content["text"] == "Stop: https://t.example.com/u/x"
    assert reason(looked(None)) == ("SUPPRESSED", "template_missing")
    assert looked(None, NOT_READ) is NOT_READ
