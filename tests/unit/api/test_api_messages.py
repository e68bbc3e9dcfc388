"""Messages, consent, suppressions and the policy check over HTTP, with the messenger's states in memory."""

import json
from typing import Any

import pytest

from starling_api.messages.bodies import RequestedConsent, RequestedSuppressions
from starling_api.messages.people import KnownPerson
from starling_messages.state import Decided, Origin, Pending, PersonState, Reached
from starling_policy import ConsentChange, PastMessage
from tests.unit.api.calls import call
from tests.unit.api.memory import World

NOW = 1_772_357_400_000
NOW_TEXT = "2026-03-01T09:30:00.000Z"


def world(state: PersonState | None = None) -> World:
    """Return a workspace whose messenger keeps that of every person."""
    found = World()
    found.people.known = None if state is None else KnownPerson(state, NOW)
    return found


def messages() -> PersonState:
    """Return a person with one message of each status."""
    waiting = Pending("a", "7", NOW + 5, NOW, Origin(NOW * 1000, "c"))
    sent = Decided("b", "e1", 3, "v", NOW - 5, NOW - 4, "requested", ["id-b"], "c", None, [Reached("SENT", NOW - 3)])
    dropped = Decided("c", "e2", 1, None, NOW - 9, NOW - 9, "dropped", ["id-c"], "c", "no_consent")
    return PersonState(pending=[waiting], decided=[sent, dropped])


def test_messages_are_listed_with_their_decision_and_outcomes_the_latest_due_first() -> None:
    answer = call(world(messages()), "GET", "/v1/users/ada/messages", role="see").json()
    assert [(one["campaign"], one["status"], one["reason"]) for one in answer["items"]] == [
        ("a", "pending", None),
        ("b", "requested", None),
        ("c", "dropped", "no_consent"),
    ]
    assert answer["items"][1]["outcomes"] == [{"outcome": "SENT", "at": "2026-03-01T09:29:59.997Z", "reason": None, "value": None}]
    assert answer["items"][0]["due_at"] == "2026-03-01T09:30:00.005Z"
    assert (answer["next_cursor"], answer["as_of"]) == (None, NOW_TEXT)
    assert "due_ms" not in answer["items"][0]


def test_pages_of_messages_follow_one_another() -> None:
    shop = world(messages())
    found, cursor = [], None
    for _ in range(3):
        page = call(shop, "GET", f"/v1/users/ada/messages?limit=1{f'&cursor={cursor}' if cursor else ''}", role="see").json()
        found += [one["campaign"] for one in page["items"]]
        cursor = page["next_cursor"]
    assert (found, cursor) == (["a", "b", "c"], None)
    assert call(shop, "GET", "/v1/users/ada/messages?cursor=x", role="see").json()["code"] == "bad_cursor"


def test_without_a_messenger_there_are_no_messages_and_no_consent() -> None:
    for what in ("messages", "consent"):
        answer = call(world(), "GET", f"/v1/users/ada/{what}", role="see").json()
        assert (answer["items"], answer["as_of"]) == ([], None)


def test_explicit_consent_is_shown_before_that_of_the_traits() -> None:
    traits = json.dumps({"consent": {"email": True, "sms": {"marketing": False, "news": 7}}})
    state = PersonState(traits=traits, consent=[ConsentChange("email", None, False, NOW, "page")])
    items = call(world(state), "GET", "/v1/users/ada/consent", role="see").json()["items"]
    assert items == [
        {"channel": "email", "purpose": None, "granted": False, "source": "page", "at": NOW_TEXT},
        {"channel": "sms", "purpose": "marketing", "granted": False, "source": "trait", "at": None},
    ]


def test_a_change_of_consent_is_published() -> None:
    shop = world()
    body = {"channel": "email", "purpose": "marketing", "granted": False}
    answer = call(shop, "PUT", "/v1/users/ada/consent", json=body, role="make")
    assert (answer.status_code, answer.json()) == (200, {**body, "source": "api", "at": NOW_TEXT})
    assert shop.people.consents == [("ada", RequestedConsent("email", "marketing", False))]


def test_a_dry_run_publishes_nothing() -> None:
    shop = world()
    call(shop, "PUT", "/v1/users/ada/consent?dry_run=true", json={"channel": "sms", "granted": True}, role="make")
    call(shop, "POST", "/v1/suppressions/email?dry_run=true", json={"addresses": ["a@example.com"]})
    assert (shop.people.consents, shop.people.suppressed) == ([], [])


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ([], [""]),
        ({}, ["", ""]),
        ({"channel": "fax", "granted": True}, ["/channel"]),
        ({"channel": "email", "granted": "yes"}, ["/granted"]),
        ({"channel": "email", "granted": True, "purpose": "no purpose", "x": 1}, ["/x", "/purpose"]),
    ],
)
def test_a_bad_change_of_consent_is_refused_with_its_places(body: Any, pointers: list[str]) -> None:
    answer = call(world(), "PUT", "/v1/users/ada/consent", json=body, role="make")
    assert (answer.status_code, [error["pointer"] for error in answer.json()["errors"]]) == (422, pointers)


def test_addresses_are_suppressed_by_an_admin_and_each_counts_once() -> None:
    shop = world()
    body = {"addresses": ["Ada@example.com", " ada@example.com", "bob@example.com"]}
    assert call(shop, "POST", "/v1/suppressions/email", json=body, role="make").status_code == 403
    answer = call(shop, "POST", "/v1/suppressions/email", json=body)
    assert (answer.status_code, answer.json()) == (200, {"channel": "email", "suppressed": True, "addresses": 2})
    assert shop.people.suppressed == [("email", RequestedSuppressions(tuple(body["addresses"]), True))]


@pytest.mark.parametrize(
    ("channel", "body", "pointer"),
    [
        ("push", {"addresses": ["a"]}, ""),
        ("email", {}, "/addresses"),
        ("email", {"addresses": []}, "/addresses"),
        ("email", {"addresses": ["a", "  "]}, "/addresses/1"),
        ("email", {"addresses": ["a"], "suppressed": "no"}, "/suppressed"),
    ],
)
def test_bad_suppressions_are_refused_with_their_place(channel: str, body: Any, pointer: str) -> None:
    answer = call(world(), "POST", f"/v1/suppressions/{channel}", json=body)
    assert (answer.status_code, [error["pointer"] for error in answer.json()["errors"]]) == (422, [pointer])


CAPPED = {"user": "ada", "channel": "email", "policy": {"caps": [{"limit": 1, "per": "1d"}]}}


def test_a_policy_check_knows_what_the_messenger_keeps() -> None:
    traits = json.dumps({"email": "ada@example.com", "consent": {"email": True}})
    state = PersonState(traits=traits, ledger=[PastMessage(NOW - 5, "email", "marketing")])
    answer = call(world(state), "POST", "/v1/policy/check", json=CAPPED, role="see").json()
    assert (answer["verdict"], answer["reason"]) == ("defer", "capped")  # vocabulary: verdict: a field of the contract
    assert (answer["until"], answer["as_of"]) == ("2026-03-02T09:29:59.995Z", NOW_TEXT)
    given = call(world(state), "POST", "/v1/policy/check", json={**CAPPED, "messages": []}, role="see").json()
    assert given["verdict"] == "send"  # vocabulary: verdict: a field of the contract
    unsubscribed = PersonState(traits=traits, consent=[ConsentChange("email", None, False, NOW)])
    refused = call(world(unsubscribed), "POST", "/v1/policy/check", json=CAPPED, role="see").json()
    assert refused["reason"] == "no_consent"


def test_a_message_that_was_decided_ahead_of_the_clock_does_not_hinder_a_check() -> None:
    traits = json.dumps({"email": "ada@example.com", "consent": {"email": True}})
    state = PersonState(traits=traits, ledger=[PastMessage(NOW + 500, "email", "marketing")])
    answer = call(world(state), "POST", "/v1/policy/check", json=CAPPED, role="see")
    assert (answer.status_code, answer.json()["verdict"]) == (200, "send")  # vocabulary: verdict: a field of the contract
