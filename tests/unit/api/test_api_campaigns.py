"""Campaigns, targets and the policy over HTTP, with stores in memory."""

import asyncio
import json
import os
from collections import Counter
from dataclasses import replace
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from jsonschema import Draft202012Validator
from prometheus_client import CollectorRegistry

from starling_api.app import build_app
from starling_api.campaigns.broadcasts import shown_broadcast
from starling_api.definitions.kinds.kinds import CAMPAIGNS, TARGETS
from starling_api.http.access.rate_limits import RateLimits, Rates
from starling_api.messages.people import KnownPerson
from starling_api.ports import MemberRow, Profile, ReportedProgress
from starling_campaigns import assignment_of, parse_stored_campaign
from starling_campaigns.channels import CHANNELS
from starling_common.http.rate_limits import Rate
from starling_common.telemetry.metrics import Metrics
from starling_messages.broadcast_progress import Written
from starling_messages.positions import behind_of
from starling_messages.state import PersonState
from starling_policy import SUPPRESSION_KINDS, PastMessage, address_digest
from tests.campaign_documents import CONTENTS, campaign, documents, full_campaign, with_template
from tests.unit.api.calls import call
from tests.unit.api.campaign_world import SMTP, world
from tests.unit.api.memory import AUTHOR, MemoryMessenger, World

AS_OF_MS = 1_772_357_400_000
EXAMPLES = int(os.environ.get("STARLING_CAMPAIGN_EXAMPLES", "150"))


def know(shop: World, user: str, traits: dict[str, Any]) -> None:
    shop.audience.reported[0] = ReportedProgress(AS_OF_MS, {})
    shop.audience.profiles[user] = Profile(user, (), traits, None, 0)


def join(shop: World, users: list[str]) -> None:
    shop.audience.member_rows = [MemberRow(0, user, 0, 1) for user in sorted(users)]


def with_campaign(document: Any = None) -> World:
    found = world()
    found.commands.define(CAMPAIGNS, AUTHOR, document or full_campaign())
    return found


def test_a_campaign_is_created_read_changed_and_archived() -> None:
    shop = world()
    made = call(shop, "POST", "/v1/campaigns", json=full_campaign(), role="make")
    assert (made.status_code, made.json()["status"], made.json()["version"]) == (201, "draft", 1)
    assert shop.published[-1].kind == "campaign"
    read = call(shop, "GET", "/v1/campaigns/win-back", role="see")
    assert read.headers["ETag"] == made.headers["ETag"]
    same = call(shop, "PUT", "/v1/campaigns/win-back", json=read.json(), role="make")
    assert (same.status_code, same.json()["revision"]) == (200, made.json()["revision"])
    renamed = call(shop, "PUT", "/v1/campaigns/win-back", json={**full_campaign(), "name": "Other"}, role="make")
    assert renamed.json()["version"] == 1
    other = call(shop, "PUT", "/v1/campaigns/win-back", json={**full_campaign(), "delay": "1h"}, role="make")
    assert (other.json()["version"], other.json()["delay"]) == (2, "1h")
    lost = call(
        shop, "PUT", "/v1/campaigns/win-back", json=full_campaign(), headers={"If-Match": made.headers["ETag"]}, role="make"
    )
    assert lost.status_code == 412
    listed = call(shop, "GET", "/v1/campaigns?status=draft", role="see").json()
    assert [one["key"] for one in listed["items"]] == ["win-back"]
    assert call(shop, "DELETE", "/v1/campaigns/win-back", role="make").status_code == 204
    assert call(shop, "GET", "/v1/campaigns/win-back", role="see").json()["status"] == "archived"
    assert call(shop, "POST", "/v1/campaigns/win-back/activate", role="make").json()["code"] == "archived"


def test_a_viewer_writes_nothing_and_a_marketer_no_target_and_no_policy() -> None:
    shop = world()
    assert call(shop, "POST", "/v1/campaigns", json=campaign(), role="see").status_code == 403
    assert call(shop, "POST", "/v1/targets", json=SMTP, role="make").status_code == 403
    assert call(shop, "PUT", "/v1/policy", json={}, role="make").status_code == 403


@pytest.mark.parametrize(
    ("document", "pointer", "code"),
    [
        (with_template("{{ 'a' * 999999999 }}"), "/variants/0/content/text", "bad_template"),
        (with_template("{{ traits.name|nope }}"), "/variants/0/content/text", "bad_template"),
        (with_template("a\r\nBcc: x@example.com", "subject"), "/variants/0/content/subject", "bad_template"),
        (campaign(variants=[{"key": "a", "weight": 90, "content": CONTENTS["email"]}]), "/variants", "out_of_range"),
        (campaign(trigger={"enter": "old"}), "/trigger/enter", "unknown_segment"),
        (campaign(target="old-smtp"), "/target", "unknown_target"),
        (campaign(trigger={"broadcast": "vips", "local": "2026-12-01T09:00Z"}), "/trigger/local", "bad_date"),
    ],
)
def test_a_bad_campaign_is_refused_with_its_place(document: Any, pointer: str, code: str) -> None:
    answer = call(world(), "POST", "/v1/campaigns", json=document, role="make")
    assert (answer.status_code, answer.headers["Content-Type"]) == (422, "application/problem+json")
    assert [(error["pointer"], error["code"]) for error in answer.json()["errors"]] == [(pointer, code)]


def test_without_a_messenger_a_draft_is_not_activated_and_the_answer_states_why() -> None:
    shop = with_campaign()
    answer = call(shop, "POST", "/v1/campaigns/win-back/activate", role="make")
    assert (answer.status_code, answer.json()["code"]) == (501, "not_yet")
    assert "no messenger" in answer.json()["message"]
    assert call(shop, "GET", "/v1/campaigns/win-back", role="see").json()["status"] == "draft"
    for operation in ("pause", "resume"):
        refused = call(shop, "POST", f"/v1/campaigns/win-back/{operation}", role="make")
        assert (refused.status_code, refused.json()["code"]) == (409, "not_activated")


@pytest.mark.parametrize("channel", sorted(CHANNELS))
def test_a_campaign_of_each_channel_is_activated(channel: str) -> None:
    shop = with_campaign(campaign(channel))
    shop.messenger = MemoryMessenger()
    assert call(shop, "POST", "/v1/campaigns/win-back/activate", role="make").json()["status"] == "active"


def test_an_activation_waits_for_every_partition_of_the_messenger_and_can_be_sent_again() -> None:
    shop = with_campaign()
    shop.messenger = MemoryMessenger()
    shop.messenger.behind = (3, 5)
    answer = call(shop, "POST", "/v1/campaigns/win-back/activate", role="make")
    assert (answer.status_code, answer.json()["code"]) == (503, "messenger_behind")
    assert "partitions 3, 5" in answer.json()["message"]
    shop.messenger.behind = ()
    assert call(shop, "POST", "/v1/campaigns/win-back/activate", role="make").json()["status"] == "active"


@pytest.mark.parametrize(("positions", "behind"), [({}, [0, 1]), ({0: 7, 1: 6}, [1]), ({0: 7, 1: 9}, [])])
def test_a_partition_is_behind_without_every_definition(positions: dict[int, int], behind: list[int]) -> None:
    assert behind_of(positions, 2, 7) == behind


def test_an_activation_finds_what_was_archived_meanwhile() -> None:
    shop = with_campaign()
    assert call(shop, "DELETE", "/v1/segments/lapsing-vips").status_code == 204
    answer = call(shop, "POST", "/v1/campaigns/win-back/activate", role="make")
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/trigger/enter")


def test_with_a_messenger_a_campaign_is_activated_paused_and_resumed_and_fields_are_frozen() -> None:
    shop = with_campaign()
    shop.messenger = MemoryMessenger()
    for operation, status in (("activate", "active"), ("activate", "active"), ("pause", "paused"), ("resume", "active")):
        answer = call(shop, "POST", f"/v1/campaigns/win-back/{operation}", role="make")
        assert (answer.status_code, answer.json()["status"]) == (200, status)
    frozen = call(shop, "PUT", "/v1/campaigns/win-back", json={**full_campaign(), "trigger": {"enter": "vips"}}, role="make")
    assert (frozen.status_code, frozen.json()["code"]) == (409, "frozen_field")
    assert [error["pointer"] for error in frozen.json()["errors"]] == ["/trigger"]
    changed = call(shop, "PUT", "/v1/campaigns/win-back", json={**full_campaign(), "delay": "1h"}, role="make")
    assert (changed.status_code, changed.json()["status"], changed.json()["version"]) == (200, "active", 2)
    history = call(shop, "GET", "/v1/campaigns/win-back/versions", role="see")
    assert history.status_code == 200
    assert [change.action for change in shop.published if change.kind == "campaign"] == [
        "DEFINED",
        "ACTIVATED",
        "PAUSED",
        "ACTIVATED",
        "ACTIVATED",
    ]


def test_without_a_messenger_a_preview_renders_and_does_not_decide() -> None:
    shop = with_campaign()
    know(shop, "ada", {"name": "<script>alert(1)</script>", "locale": "pt_br"})
    answer = call(shop, "POST", "/v1/campaigns/win-back/preview", json={"user": "ada", "variant": "a"}, role="see").json()
    assert (answer["subject"], answer["html"]) == ("Olá", "<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>")
    assert (answer["missing"], answer["locale"]) == ([], "pt-BR")
    assert answer["verdict"] is None  # vocabulary: verdict: a field of the contract
    own = assignment_of(parse_stored_campaign(full_campaign()), "ada")
    answer = call(shop, "POST", "/v1/campaigns/win-back/preview", json={"user": "ada"}, role="see").json()
    assert (answer["variant"], answer["held_out"]) == own


def test_a_preview_reports_missing_values_and_refuses_a_header_with_a_line_break() -> None:
    shop = with_campaign(with_template("Hi {{ traits.name }}", "subject"))
    know(shop, "ada", {})
    know(shop, "eve", {"name": "a\r\nBcc: all@example.com"})
    path = "/v1/campaigns/win-back/preview"
    assert call(shop, "POST", path, json={"user": "ada"}, role="see").json()["missing"] == ["traits.name"]
    refused = call(shop, "POST", path, json={"user": "eve"}, role="see")
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (422, "header_line_break")
    for body, status in (
        ({"user": "unknown"}, 404),
        ({"user": "ada", "variant": "z"}, 422),
        ({"user": "ada", "locale": "english"}, 422),
        ({"user": "ada", "event": {"name": 1, "colour": 2}}, 422),
        ({}, 422),
        ([], 422),
    ):
        assert call(shop, "POST", path, json=body, role="see").status_code == status
    assert call(shop, "POST", "/v1/campaigns/none/preview", json={"user": "ada"}, role="see").json()["code"] == "unknown_campaign"


MARKETING: dict[str, Any] = {"purpose": "marketing", "holdout": {"percent": 20}, "reentry": "once"}
CONSENTING = {"email": "ada@example.com", "consent": {"email": True}}
NOT_NOW = [PastMessage(AS_OF_MS - 1, "email", "marketing", "win-back", None)]


def person(traits: dict[str, Any], ledger: list[PastMessage] | None = None) -> KnownPerson:
    """Return what the messenger keeps of a person."""
    found = PersonState(traits=json.dumps(traits))
    for one in ledger or []:
        found.past(one, 90 * 86_400_000)
    return KnownPerson(found, AS_OF_MS)


def counted(shop: World) -> tuple[Counter[tuple[str | None, ...]], int]:
    """Return the counts of all pages of a dry run, and the number of pages."""
    counts: Counter[tuple[str | None, ...]] = Counter()
    cursor, answers = "", 0
    while True:
        page = call(shop, "POST", f"/v1/campaigns/win-back/dry-run{cursor}", role="see").json()
        answers += 1
        assert sum(one["count"] for one in page["counts"]) == page["counted"]
        for one in page["counts"]:
            shown = one["verdict"], one["reason"], one["variant"]  # vocabulary: verdict: a field of the contract
            counts[shown] += one["count"]
        if page["next_cursor"] is None:
            return counts, answers
        cursor = f"?cursor={page['next_cursor']}"


def test_a_dry_run_counts_every_member_once_over_its_pages() -> None:
    shop = with_campaign()
    users = [f"u{i}" for i in range(10_500)]
    join(shop, users)
    parsed = parse_stored_campaign(full_campaign())
    expected = Counter((None, None, assignment_of(parsed, user).variant) for user in users)
    assert counted(shop) == (expected, 2)


def test_a_dry_run_decides_as_if_every_member_was_due_now() -> None:
    shop = with_campaign(campaign(**MARKETING))
    quiet = {"quiet_hours": {"from": "09:00", "to": "10:00"}, "caps": [{"limit": 1, "per": "7d"}]}
    assert call(shop, "PUT", "/v1/policy", json=quiet).status_code == 200
    kinds = {
        "plain": person({**CONSENTING, "timezone": "Asia/Tokyo"}),
        "asleep": person(CONSENTING),
        "refusing": person({"email": "ada@example.com"}),
        "nowhere": person({"consent": {"email": True}}),
        "before": person({**CONSENTING, "timezone": "Asia/Tokyo"}, NOT_NOW),
        "capped": person({**CONSENTING, "timezone": "Asia/Tokyo"}, [NOT_NOW[0]._replace(campaign="other", at=AS_OF_MS + 5)]),
    }
    shop.people.by_user = {f"{kind}-{i}": known for kind, known in kinds.items() for i in range(20)}
    join(shop, list(shop.people.by_user))
    parsed = parse_stored_campaign(campaign(**MARKETING))
    reasons = {"asleep": ("defer", "quiet_hours"), "refusing": ("drop", "no_consent"), "nowhere": ("drop", "no_address"),
               "before": ("drop", "reentry"), "capped": ("drop", "capped")}  # fmt: skip
    expected: Counter[tuple[str | None, ...]] = Counter()
    for user in shop.people.by_user:
        own = assignment_of(parsed, user)
        plain = ("drop", "holdout") if own.held_out else ("send", None)
        expected[*reasons.get(user.partition("-")[0], plain), own.variant] += 1
    assert counted(shop) == (expected, 1)
    assert expected["drop", "holdout", "a"] > 0
    answer = call(shop, "POST", "/v1/campaigns/win-back/dry-run", role="see").json()
    assert answer["as_of"] == "2026-03-01T09:30:00.000Z"


def test_a_dry_run_counts_suppressed_addresses() -> None:
    shop = with_campaign(campaign(purpose="transactional"))
    kinds = (*SUPPRESSION_KINDS, None)
    for number, kind in enumerate(kinds * 20):
        shop.people.by_user[f"{kind}-{number}"] = person({"email": f"U{number}@Example.com"})
        if kind is not None:
            shop.people.kinds[AUTHOR.workspace, "email", address_digest(f"u{number}@example.com")] = kind
            shop.people.kinds["other", "email", address_digest(f"u{number}@example.com")] = "uploaded"
    shop.people.kinds[AUTHOR.workspace, "sms", address_digest("u5@example.com")] = "uploaded"
    join(shop, list(shop.people.by_user))
    parsed = parse_stored_campaign(campaign(purpose="transactional"))
    expected: Counter[tuple[str | None, ...]] = Counter()
    for user in shop.people.by_user:
        # A transactional message reaches people who have complained.
        is_sent = user.partition("-")[0] in {"None", "complaint"}
        decision = ("send", None) if is_sent else ("drop", "suppressed")
        expected[*decision, assignment_of(parsed, user).variant] += 1
    found, _ = counted(shop)
    assert found == expected
    assert found["drop", "suppressed", "a"] == 80


def test_a_preview_considers_a_suppression_and_a_broker_that_does_not_answer_is_503() -> None:
    shop = with_campaign(campaign(purpose="transactional"))
    know(shop, "ada", {"email": "ada@example.com", "name": "Ada"})
    shop.people.known = person({"email": "ada@example.com", "name": "Ada"})
    preview = "/v1/campaigns/win-back/preview"
    assert call(shop, "POST", preview, json={"user": "ada"}, role="see").json()["reason"] is None
    shop.people.kinds[AUTHOR.workspace, "email", address_digest("ada@example.com")] = "uploaded"
    assert call(shop, "POST", preview, json={"user": "ada"}, role="see").json()["reason"] == "suppressed"
    shop.people.is_unread = True
    assert call(shop, "POST", preview, json={"user": "ada"}, role="see").status_code == 503
    join(shop, ["ada"])
    assert call(shop, "POST", "/v1/campaigns/win-back/dry-run", role="see").status_code == 503


@pytest.mark.parametrize(
    ("traits", "decision", "reason"),
    [
        ({**CONSENTING, "name": "Ada"}, "send", None),
        ({"email": "ada@example.com", "name": "Ada"}, "drop", "no_consent"),
        (CONSENTING, "drop", "template_missing"),
    ],
)
def test_with_a_messenger_a_preview_decides(traits: dict[str, Any], decision: str, reason: str | None) -> None:
    shop = with_campaign({**with_template("Hi {{ traits.name }}", "subject"), "purpose": "marketing"})
    know(shop, "ada", traits)
    shop.people.known = person(traits)
    answer = call(shop, "POST", "/v1/campaigns/win-back/preview", json={"user": "ada"}, role="see").json()
    shown = answer["verdict"], answer["reason"]  # vocabulary: verdict: a field of the contract
    assert shown == (decision, reason)


TEST = "/v1/campaigns/win-back/test"


def test_a_test_is_requested_for_each_address_once() -> None:
    shop = with_campaign(with_template("Hi {{ traits.name }}", "subject"))
    know(shop, "ada", {"name": "Ada"})
    body = {"user": "ada", "to": ["a@example.com", "b@example.com"]}
    repeated = {"Idempotency-Key": "1"}
    assert call(shop, "POST", f"{TEST}?dry_run=true", json=body, role="make").status_code == 202
    assert shop.people.tests == []
    first = call(shop, "POST", TEST, json=body, role="make", headers=repeated)
    again = call(shop, "POST", TEST, json=body, role="make", headers=repeated)
    assert (first.status_code, first.json()) == (202, again.json())
    assert [(channel, one["address"], one["campaign"], one["version"]) for channel, one in shop.people.tests] == [
        ("email", "a@example.com", "win-back", 1), ("email", "b@example.com", "win-back", 1),
    ]  # fmt: skip
    assert [one["delivery_id"] for one in first.json()["messages"]] == [one["delivery_id"] for _, one in shop.people.tests]
    assert len({one["delivery_id"] for _, one in shop.people.tests}) == 2
    assert shop.people.tests[0][1]["context"] == {"traits": {"name": "Ada"}, "event": None}


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"to": ["a@example.com"]}, 422, "missing_field"),
        ({"user": "ada"}, 422, "missing_field"),
        ({"user": "ada", "to": []}, 422, "wrong_type"),
        ({"user": "ada", "to": ["a@example.com"] * 2}, 422, "duplicate"),
        ({"user": "ada", "to": [f"{i}@example.com" for i in range(11)]}, 422, "wrong_type"),
        ({"user": "ada", "to": ["a@example.com\r\nBcc: b@example.com"]}, 422, "bad_address"),
        ({"user": "ada", "to": ["a@example.com\n"]}, 422, "bad_address"),
        ({"user": "ada", "to": [1]}, 422, "wrong_type"),
        ({"user": "eve", "to": ["a@example.com"]}, 422, "template_missing"),
        ({"user": "bob", "to": ["a@example.com"]}, 404, "unknown_user"),
        ({"user": "ada", "to": ["a@example.com"], "variant": "z"}, 422, "unknown_variant"),
        ({"user": "ada", "to": ["a@example.com"], "colour": 1}, 422, "unknown_field"),
    ],
)
def test_a_bad_test_is_refused_and_sends_nothing(body: dict[str, Any], status: int, code: str) -> None:
    shop = with_campaign(with_template("Hi {{ traits.name }}", "subject"))
    know(shop, "ada", {"name": "Ada"})
    know(shop, "eve", {})
    answer = call(shop, "POST", TEST, json=body, role="make")
    found = answer.json()
    assert (answer.status_code, found["errors"][0]["code"] if status == 422 else found["code"]) == (status, code)
    assert shop.people.tests == []


def test_only_a_marketer_tests_and_only_what_can_be_sent() -> None:
    shop = with_campaign(campaign())
    know(shop, "ada", {})
    body = {"user": "ada", "to": ["a@example.com"]}
    assert call(shop, "POST", TEST, json=body, role="see").status_code == 403
    assert call(shop, "POST", "/v1/campaigns/none/test", json=body, role="make").status_code == 404
    assert call(shop, "DELETE", "/v1/campaigns/win-back", role="make").status_code == 204
    assert call(shop, "POST", TEST, json=body, role="make").json()["code"] == "archived"


def test_a_webhook_is_tested_at_the_endpoint_of_its_target() -> None:
    content = {"body": '{"name": "{{ traits.name }}"}'}
    shop = with_campaign(campaign("webhook", variants=[{"key": "a", "weight": 100, "content": content}]))
    know(shop, "ada", {"name": "Ada"})
    target = call(shop, "GET", f"/v1/targets/{campaign('webhook')['target']}", role="see").json()
    answer = call(shop, "POST", TEST, json={"user": "ada", "to": [target["url"]]}, role="make")
    assert answer.status_code == 202, answer.text
    assert [(channel, one["address"]) for channel, one in shop.people.tests] == [("webhook", target["url"])]
    refused = call(shop, "POST", TEST, json={"user": "ada", "to": ["https://other.example.com/"]}, role="make").json()
    assert [(error["pointer"], error["code"]) for error in refused["errors"]] == [("/to/0", "bad_address")]
    assert target["url"] in refused["errors"][0]["expected"]


BROWSER = '{"endpoint":"https://push.example/a","keys":{"auth":"YXV0aA","p256dh":"cHVibGlj"}}'
ANDROID = "dGVzdA:APA91b" + "x" * 130


def test_a_notification_is_tested_on_devices_that_its_target_reaches() -> None:
    shop = with_campaign(campaign("push"))
    know(shop, "ada", {"name": "Ada"})
    answer = call(shop, "POST", TEST, json={"user": "ada", "to": [BROWSER]}, role="make")
    assert answer.status_code == 202
    assert [(channel, one["address"]) for channel, one in shop.people.tests] == [("push", BROWSER)]
    refused = call(shop, "POST", TEST, json={"user": "ada", "to": [BROWSER, ANDROID, "ada@example.com"]}, role="make").json()
    assert [(error["pointer"], error["code"]) for error in refused["errors"]] == [
        ("/to/1", "bad_address"),
        ("/to/2", "bad_address"),
    ]
    assert "webpush" in refused["errors"][0]["expected"]


@pytest.mark.parametrize(("device", "decision"), [(BROWSER, ("send", None)), (ANDROID, ("drop", "no_address"))])
def test_a_preview_of_a_notification_knows_the_devices_of_its_target(device: str, decision: tuple[str, str | None]) -> None:
    shop = with_campaign({**campaign("push"), "purpose": "transactional"})
    know(shop, "ada", {"name": "Ada"})
    shop.people.known = person({"name": "Ada"})
    shop.people.known.state.registers("push", device)
    answer = call(shop, "POST", "/v1/campaigns/win-back/preview", json={"user": "ada"}, role="see").json()
    assert (answer["verdict"], answer["reason"]) == decision  # vocabulary: verdict: a field of the contract
    assert answer["title"] == "Hello"


def test_a_dry_run_needs_a_segment() -> None:
    shop = with_campaign(campaign(trigger={"event": {"event": "X"}}))
    assert call(shop, "POST", "/v1/campaigns/win-back/dry-run", role="see").json()["errors"][0]["code"] == "no_members"
    assert call(shop, "POST", "/v1/campaigns/win-back/dry-run?cursor=x", role="see").status_code == 422


def test_the_secrets_of_a_target_are_never_shown_and_a_masked_one_is_kept() -> None:
    shop = world()
    shown = call(shop, "GET", "/v1/targets/main-smtp", role="see")
    assert shown.json()["password"] == "***"
    changed = call(shop, "PUT", "/v1/targets/main-smtp", json={**shown.json(), "host": "other.example.com"})
    assert (changed.status_code, changed.json()["host"], changed.json()["password"]) == (200, "other.example.com", "***")
    assert shop.plain(TARGETS, shop.published[-1])["password"] == "s3cret"
    for path in ("/v1/targets", "/v1/targets/main-smtp"):
        assert "s3cret" not in call(shop, "GET", path, role="see").text
    bad = call(shop, "POST", "/v1/targets", json={**SMTP, "key": "x", "password": "s3cret\n"})
    assert bad.status_code == 422
    assert "s3cret" not in bad.text


def test_a_target_in_use_is_not_archived() -> None:
    shop = with_campaign()
    answer = call(shop, "DELETE", "/v1/targets/main-smtp")
    assert (answer.status_code, answer.json()["used_by"]) == (409, ["win-back"])
    assert call(shop, "DELETE", "/v1/campaigns/win-back").status_code == 204
    assert call(shop, "DELETE", "/v1/targets/main-smtp").status_code == 204


def test_a_target_that_answered_410_shows_it_and_is_enabled_again() -> None:
    shop = with_campaign()
    place = (AUTHOR.workspace, "target", "main-smtp")
    stored = shop.reader.shown[place]
    gone = {**stored.document, "disabled": True, "disabled_because": "the endpoint answered 410 Gone"}
    later = stored.recorded_at_micros + 60_000_000
    shop.reader.shown[place] = replace(stored, status="disabled", document=gone, recorded_at_micros=later)
    shown = call(shop, "GET", "/v1/targets/main-smtp", role="see").json()
    assert (shown["status"], shown["disabled"], shown["disabled_because"]) == ("disabled", True, "the endpoint answered 410 Gone")
    assert shown["password"] == "***"
    listed = call(shop, "GET", "/v1/targets?status=disabled", role="see").json()["items"]
    assert [one["key"] for one in listed] == ["main-smtp"]
    assert call(shop, "POST", "/v1/targets/main-smtp/enable", role="make").status_code == 403
    enabled = call(shop, "POST", "/v1/targets/main-smtp/enable")
    assert (enabled.status_code, enabled.json()["status"], "disabled" in enabled.json()) == (200, "active", False)
    assert shop.published[-1].action == "REVISED"
    assert shop.published[-1].document == stored.document
    assert call(shop, "POST", "/v1/targets/none/enable").status_code == 404


def test_the_policy_is_replaced_and_used_by_a_check() -> None:
    shop = with_campaign(campaign())
    know(shop, "ada", {"email": "ada@example.com"})
    assert call(shop, "GET", "/v1/policy", role="see").status_code == 404
    check = {"user": "ada", "campaign": "win-back", "at": "2026-03-01T09:30:00Z"}
    first = call(shop, "POST", "/v1/policy/check", json=check, role="see").json()
    assert (first["verdict"], first["reason"]) == ("drop", "no_consent")  # vocabulary: verdict: a field of the contract
    put = call(shop, "PUT", "/v1/policy", json={"consent": {"email": "opt_out"}})
    assert (put.status_code, put.json()["consent"], put.json()["version"]) == (200, {"email": "opt_out"}, 1)
    again = call(shop, "PUT", "/v1/policy", json=call(shop, "GET", "/v1/policy", role="see").json())
    assert (again.status_code, again.json()["version"]) == (200, 1)
    second = call(shop, "POST", "/v1/policy/check", json=check, role="see").json()
    assert second["verdict"] == "send"  # vocabulary: verdict: a field of the contract
    assert call(shop, "POST", "/v1/policy/check", json={**check, "campaign": "none"}, role="see").status_code == 404
    refused: list[Any] = [{"timezone": "Mars/Base"}, {"caps": [{"limit": 0, "per": "1d"}]}, {"key": "other"}, {"colour": 1}, [], 1]
    for bad in refused:
        assert call(shop, "PUT", "/v1/policy", json=bad).status_code == 422


def test_every_error_of_a_campaign_is_found_at_once() -> None:
    document = campaign(
        trigger={"enter": "old"},
        target="old-smtp",
        delay="91d",
        priority=101,
        purpose="Not A Key",
        expires_after="8d",
        reentry={"after": "0d"},
        holdout={"percent": 101},
        goal={"event": "Order Completed", "within": "31d"},
        colour="red",
        variants=[
            {"key": "a", "weight": 60, "content": {**CONTENTS["email"], "subject": "{{ traits.name|nope }}"}},
            {"key": "b", "weight": 30, "content": CONTENTS["email"], "locales": {"english": {"subject": "Hi"}}},
        ],
    )
    answer = call(world(), "POST", "/v1/campaigns", json=document, role="make")
    assert answer.status_code == 422
    assert {error["pointer"] for error in answer.json()["errors"]} >= {
        "/trigger/enter", "/target", "/delay", "/priority", "/purpose", "/expires_after", "/reentry/after", "/holdout/percent",
        "/goal/within", "/colour", "/variants", "/variants/0/content/subject", "/variants/1/locales/english",
    }  # fmt: skip


@pytest.mark.parametrize("size", [1_000_000, 260_000])
def test_huge_and_hostile_traits_fail_no_preview(size: int) -> None:
    shop = with_campaign(with_template("Hi {{ traits.name }}", "html"))
    for name in ("x" * size, "<script>alert(1)</script>" * (size // 100), "{{ 7 * 7 }}", "\ud800", "a\x00b"):
        know(shop, "ada", {"name": name})
        answer = call(shop, "POST", "/v1/campaigns/win-back/preview", json={"user": "ada"}, role="see")
        assert answer.status_code in {200, 422}, answer.text[:200]
        assert "<script>" not in answer.text
        if answer.status_code == 422:
            assert answer.json()["errors"][0]["code"] in {"template_error", "template_too_large", "header_line_break"}


BROADCAST = {"broadcast": "vips", "at": "2026-12-01T09:00:00Z"}


def test_nothing_of_an_active_broadcast_changes() -> None:
    shop = with_campaign(campaign(trigger=BROADCAST))
    shop.messenger = MemoryMessenger()
    answer = call(shop, "POST", "/v1/campaigns/win-back/activate", role="make")
    assert (answer.status_code, answer.json()["status"]) == (200, "active")
    shown = call(shop, "GET", "/v1/campaigns/win-back", role="see").json()
    assert call(shop, "PUT", "/v1/campaigns/win-back", json=shown, role="make").status_code == 200
    changed = campaign(trigger=BROADCAST, expires_after="2h")
    answer = call(shop, "PUT", "/v1/campaigns/win-back", json=changed, role="make")
    assert (answer.status_code, answer.json()["code"]) == (409, "frozen_field")


@pytest.mark.parametrize(
    ("written", "status", "expected"),
    [
        (Written(), "active", {"state": "waiting", "written": 0}),
        (Written(40, 2, "ada"), "active", {"state": "writing", "written": 40}),
        (Written(40, 2, "ada"), "paused", {"state": "writing", "written": 40}),
        (Written(40, 2, "ada"), "archived", {"state": "done", "written": 40}),
        (Written(90, 16, "", True), "active", {"state": "done", "written": 90}),
    ],
)
def test_a_broadcast_shows_how_far_it_is_written(written: Written, status: str, expected: dict[str, Any]) -> None:
    assert shown_broadcast(written, status) == expected


def test_only_a_broadcast_shows_its_progress() -> None:
    shop = with_campaign(campaign(trigger=BROADCAST))
    assert call(shop, "GET", "/v1/campaigns/win-back", role="see").json()["broadcast"] is None
    shop.written = {(AUTHOR.workspace, "win-back"): Written(40, 2, "ada")}
    shown = call(shop, "GET", "/v1/campaigns/win-back", role="see").json()
    assert shown["broadcast"] == {"state": "writing", "written": 40}
    assert call(shop, "POST", "/v1/campaigns/win-back/dry-run", role="see").json()["segment"] == "vips"
    assert "broadcast" not in call(with_campaign(), "GET", "/v1/campaigns/win-back", role="see").json()


def test_a_list_shows_the_progress_of_every_broadcast_and_reads_it_once() -> None:
    shop = with_campaign(campaign(trigger=BROADCAST))
    for key in ("autumn", "spring"):
        shop.commands.define(CAMPAIGNS, AUTHOR, campaign(key=key, trigger=BROADCAST))
    shop.commands.define(CAMPAIGNS, AUTHOR, campaign(key="plain"))

    def listed(query: str = "") -> dict[str, Any]:
        items = call(shop, "GET", f"/v1/campaigns{query}", role="see").json()["items"]
        return {one["key"]: one.get("broadcast", "no broadcast") for one in items}

    assert listed() == {"autumn": None, "plain": "no broadcast", "spring": None, "win-back": None}
    shop.written = {(AUTHOR.workspace, "win-back"): Written(40, 2, "ada"), (AUTHOR.workspace, "spring"): Written(7, 16, "", True)}
    shop.broadcast_reads.clear()
    assert listed() == {
        "autumn": {"state": "waiting", "written": 0},
        "plain": "no broadcast",
        "spring": {"state": "done", "written": 7},
        "win-back": {"state": "writing", "written": 40},
    }
    assert shop.broadcast_reads == [["autumn", "spring", "win-back"]]
    assert listed("?limit=1&sort=-key") == {"win-back": {"state": "writing", "written": 40}}
    assert shop.broadcast_reads[1:] == [["win-back"]]


def test_the_schema_of_a_campaign_is_public() -> None:
    schema = call(World(), "GET", "/v1/campaign-schema.json", role="unknown").json()
    Draft202012Validator(schema).validate(full_campaign())


UNLIMITED = Rate.of(1e9)
APP = build_app(replace(world().services, rate_limits=RateLimits(Rates(*[UNLIMITED] * 5))), Metrics(CollectorRegistry()), dict)


async def post(document: Any) -> httpx.Response:
    headers = {"Authorization": "Bearer make"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(APP, raise_app_exceptions=False), base_url="http://api") as client:
        return await client.post("/v1/campaigns?dry_run=true", content=json.dumps(document), headers=headers)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(documents())
def test_no_generated_campaign_fails_the_server(document: Any) -> None:
    answer = asyncio.run(post(document))
    assert answer.status_code in {201, 400, 422}, answer.text
    if answer.status_code != 201:
        assert answer.json()["code"] in {"invalid_definition", "not_json", "read_only"}
