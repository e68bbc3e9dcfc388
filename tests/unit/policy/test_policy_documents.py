"""Policies and campaigns: what is accepted, and every validation error with its code and location."""

import json
from typing import Any

import pytest

from starling_policy import Cap, MessageRules, Policy, QuietHours, Variant, parse_campaign, parse_policy
from starling_policy.bounds import MAX_CAPS, MAX_NAMES, MAX_VARIANTS
from starling_segments import DefinitionRefused
from starling_segments.language.validation import CODES
from tests.unit.policy.making import DAY_MS, HOUR_MS

CAP = {"limit": 1, "per": "1d"}
CAMPAIGN = {"key": "win-back", "channel": "email"}


def errors_of(parse: Any, document: object) -> list[tuple[str, str]]:
    with pytest.raises(DefinitionRefused) as caught:
        parse(document)
    for error in caught.value.errors:
        assert error.message, error
        assert error.expected, error
        assert error.code in CODES, error
    return [(error.code, error.pointer) for error in caught.value.errors]


def test_the_defaults_of_a_policy() -> None:
    assert parse_policy({}) == Policy("UTC", None, (), frozenset(), 0, 0)
    assert parse_policy({"timezone": None, "caps": None, "quiet_hours": None, "consent": None, "control_group": None}) == Policy()
    assert parse_policy({}, "Asia/Tokyo").timezone == "Asia/Tokyo"


def test_a_whole_policy() -> None:
    document = {
        "timezone": "Europe/Berlin",
        "quiet_hours": {"from": "21:00", "to": "08:30"},
        "caps": [{"limit": 0, "per": "90d"}, {"limit": 100, "per": "1s", "channels": ["email", "sms"], "purposes": ["news"]}],
        "consent": {"email": "opt_out", "sms": "opt_in"},
        "control_group": {"percent": 2.5},
        "priority_hold": "5m",
    }
    caps = (Cap(0, 90 * DAY_MS), Cap(100, 1000, frozenset({"email", "sms"}), frozenset({"news"})))
    quiet = QuietHours(21 * HOUR_MS, 8 * HOUR_MS + HOUR_MS // 2)
    assert parse_policy(document) == Policy("Europe/Berlin", quiet, caps, frozenset({"email"}), 250, 300_000)


@pytest.mark.parametrize(
    ("document", "errors"),
    [
        ([], [("wrong_type", "")]),
        (None, [("wrong_type", "")]),
        ({"quiet": 1}, [("unknown_field", "/quiet")]),
        ({"timezone": "Mars/Olympus"}, [("bad_timezone", "/timezone")]),
        ({"timezone": 7}, [("bad_timezone", "/timezone")]),
        ({"timezone": "localtime"}, [("bad_timezone", "/timezone")]),
        ({"quiet_hours": "night"}, [("wrong_type", "/quiet_hours")]),
        ({"quiet_hours": {}}, [("missing_field", "/quiet_hours"), ("missing_field", "/quiet_hours")]),
        (
            {"quiet_hours": {"from": "24:00", "to": "8:00"}},
            [("wrong_type", "/quiet_hours/from"), ("wrong_type", "/quiet_hours/to")],
        ),
        ({"quiet_hours": {"from": "21:00\n", "to": "08:00"}}, [("wrong_type", "/quiet_hours/from")]),
        ({"quiet_hours": {"from": "08:00", "to": "08:00"}}, [("bad_window", "/quiet_hours")]),
        ({"quiet_hours": {"from": "21:00", "to": "08:00", "days": []}}, [("unknown_field", "/quiet_hours/days")]),
        ({"caps": {}}, [("wrong_type", "/caps")]),
        ({"caps": [7]}, [("wrong_type", "/caps/0")]),
        ({"caps": [CAP] * (MAX_CAPS + 1)}, [("too_wide", "/caps")]),
        ({"caps": [{}]}, [("missing_field", "/caps/0"), ("missing_field", "/caps/0")]),
        ({"caps": [CAP | {"limit": 101}]}, [("out_of_range", "/caps/0/limit")]),
        ({"caps": [CAP | {"limit": -1}]}, [("out_of_range", "/caps/0/limit")]),
        ({"caps": [CAP | {"limit": 1.0}]}, [("wrong_type", "/caps/0/limit")]),
        ({"caps": [CAP | {"limit": True}]}, [("wrong_type", "/caps/0/limit")]),
        ({"caps": [CAP | {"per": "91d"}]}, [("out_of_range", "/caps/0/per")]),
        ({"caps": [CAP | {"per": "0d"}]}, [("bad_duration", "/caps/0/per")]),
        ({"caps": [CAP | {"per": 7}]}, [("bad_duration", "/caps/0/per")]),
        ({"caps": [CAP | {"channels": []}]}, [("wrong_type", "/caps/0/channels")]),
        ({"caps": [CAP | {"channels": "email"}]}, [("wrong_type", "/caps/0/channels")]),
        ({"caps": [CAP | {"channels": ["email", 7, "E"]}]}, [("bad_key", "/caps/0/channels/1"), ("bad_key", "/caps/0/channels/2")]),
        ({"caps": [CAP | {"purposes": ["a"] * (MAX_NAMES + 1)}]}, [("too_wide", "/caps/0/purposes")]),
        ({"caps": [CAP | {"chanels": ["email"]}]}, [("unknown_field", "/caps/0/chanels")]),
        ({"consent": []}, [("wrong_type", "/consent")]),
        ({"consent": {"email": True}}, [("wrong_type", "/consent/email")]),
        ({"consent": {"email": ["opt_in"]}}, [("wrong_type", "/consent/email")]),
        ({"consent": {"E/mail": "opt_in"}}, [("bad_key", "/consent/E~1mail")]),
        ({"consent": {f"c{number}": "opt_in" for number in range(MAX_NAMES + 1)}}, [("too_wide", "/consent")]),
        ({"control_group": 5}, [("wrong_type", "/control_group")]),
        ({"control_group": {}}, [("missing_field", "/control_group")]),
        ({"control_group": {"percent": 100.01}}, [("out_of_range", "/control_group/percent")]),
        ({"control_group": {"percent": -0.01}}, [("out_of_range", "/control_group/percent")]),
        ({"control_group": {"percent": 0.001}}, [("out_of_range", "/control_group/percent")]),
        ({"control_group": {"percent": "5"}}, [("wrong_type", "/control_group/percent")]),
        ({"control_group": {"percent": 5, "salt": "x"}}, [("unknown_field", "/control_group/salt")]),
        ({"priority_hold": "2d"}, [("out_of_range", "/priority_hold")]),
    ],
)
def test_a_policy_is_refused_with_the_location(document: object, errors: list[tuple[str, str]]) -> None:
    assert errors_of(parse_policy, document) == errors


def test_all_errors_of_a_policy_are_reported_at_once() -> None:
    document = {"timezone": "X", "quiet_hours": {"from": "1"}, "caps": [CAP, {"limit": 500}], "consent": {"sms": "no"}, "more": 1}
    assert errors_of(parse_policy, document) == [
        ("unknown_field", "/more"),
        ("bad_timezone", "/timezone"),
        ("wrong_type", "/quiet_hours/from"),
        ("missing_field", "/quiet_hours"),
        ("out_of_range", "/caps/1/limit"),
        ("missing_field", "/caps/1"),
        ("wrong_type", "/consent/sms"),
    ]


def test_a_document_out_of_bounds_is_refused_before_it_is_read() -> None:
    deep: Any = []
    for _ in range(100):
        deep = [deep]
    assert [code for code, _ in errors_of(parse_policy, {"caps": deep})] == ["too_deep"]
    assert errors_of(parse_policy, {"timezone": "x" * 300_000}) == [("too_large", "")]
    assert errors_of(parse_policy, {"timezone": "\ud800"}) == [("bad_text", "/timezone")]
    assert errors_of(parse_campaign, CAMPAIGN | {"priority": 2**60}) == [("out_of_range", "/priority")]


def test_the_defaults_of_a_campaign() -> None:
    assert parse_campaign(CAMPAIGN) == MessageRules("email", "win-back", "marketing", 50, DAY_MS, "defer", "defer", 0, None, 0, ())


def test_a_whole_campaign_and_the_fields_that_the_policy_does_not_read() -> None:
    document = json.loads(
        """{"key": "win-back", "name": "Win back", "trigger": {"enter": "lapsing-vips"}, "delay": "2h",
        "cancel": {"left": true, "event": {"event": "Order Completed"}}, "reentry": {"after": "30d"}, "priority": 60,
        "purpose": "news", "expires_after": "7d", "quiet": "drop", "caps": "drop", "channel": "email", "target": "main-smtp",
        "variants": [{"key": "a", "weight": 99.99, "content": {"subject": "Hi"}, "locales": {"ja": {}}},
        {"key": "b", "weight": 0.01}], "holdout": {"percent": 10}, "dedupe_key": "vip",
        "goal": {"event": "Order Completed", "within": "7d", "value": "revenue"}}"""
    )
    variants = (Variant("a", 9999), Variant("b", 1))
    wanted = MessageRules("email", "win-back", "news", 60, 7 * DAY_MS, "drop", "drop", 30 * DAY_MS, "vip", 1000, variants)
    assert parse_campaign(document) == wanted
    assert parse_campaign(CAMPAIGN | {"reentry": "once"}).reentry_ms is None
    assert parse_campaign(CAMPAIGN | {"reentry": "always"}).reentry_ms == 0


@pytest.mark.parametrize(
    "weights",
    [[99], [100, 1], [50, 49.99], [33.33, 33.33, 33.33], [33.34, 33.33, 33.34], [0]],
)
def test_weights_that_miss_100_are_refused(weights: list[float]) -> None:
    variants = [{"key": f"v{number}", "weight": weight} for number, weight in enumerate(weights)]
    assert errors_of(parse_campaign, CAMPAIGN | {"variants": variants}) == [("out_of_range", "/variants")]


@pytest.mark.parametrize("weights", [[100], [50, 50], [33.33, 33.33, 33.34], [0, 100], [0.01, 99.99], [14.29] * 6 + [14.26]])
def test_weights_that_sum_to_100_are_accepted_exactly(weights: list[float]) -> None:
    variants = [{"key": f"v{number}", "weight": weight} for number, weight in enumerate(weights)]
    assert sum(one.share for one in parse_campaign(CAMPAIGN | {"variants": variants}).variants) == 10_000


@pytest.mark.parametrize(
    ("fields", "errors"),
    [
        ({"key": None, "channel": None}, [("missing_field", ""), ("missing_field", "")]),
        ({"key": "Win Back"}, [("bad_key", "/key")]),
        ({"channel": 7}, [("bad_key", "/channel")]),
        ({"purpose": ""}, [("bad_key", "/purpose")]),
        ({"priority": 101}, [("out_of_range", "/priority")]),
        ({"priority": "high"}, [("wrong_type", "/priority")]),
        ({"expires_after": "8d"}, [("out_of_range", "/expires_after")]),
        ({"expires_after": "1y"}, [("bad_duration", "/expires_after")]),
        ({"quiet": "ignore"}, [("wrong_type", "/quiet")]),
        ({"caps": []}, [("wrong_type", "/caps")]),
        ({"reentry": "never"}, [("wrong_type", "/reentry")]),
        ({"reentry": {}}, [("missing_field", "/reentry")]),
        ({"reentry": {"after": "1d", "most": 2}}, [("unknown_field", "/reentry/most")]),
        ({"dedupe_key": ""}, [("wrong_type", "/dedupe_key")]),
        ({"dedupe_key": "k" * 201}, [("wrong_type", "/dedupe_key")]),
        ({"holdout": 10}, [("wrong_type", "/holdout")]),
        ({"holdout": {"percent": 101}}, [("out_of_range", "/holdout/percent")]),
        ({"variants": []}, [("wrong_type", "/variants")]),
        ({"variants": [{"key": f"v{n}", "weight": 1} for n in range(MAX_VARIANTS + 1)]}, [("too_wide", "/variants")]),
        ({"variants": [7]}, [("wrong_type", "/variants/0")]),
        ({"variants": [{"key": "a"}, {"weight": 50}]}, [("missing_field", "/variants/0"), ("missing_field", "/variants/1")]),
        ({"variants": [{"key": "a", "weight": 50}, {"key": "a", "weight": 50}]}, [("key_taken", "/variants/1/key")]),
        ({"variants": [{"key": "a", "weight": 100, "share": 1}]}, [("unknown_field", "/variants/0/share")]),
        ({"when": "now"}, [("unknown_field", "/when")]),
    ],
)
def test_a_campaign_is_refused_with_the_location(fields: dict[str, Any], errors: list[tuple[str, str]]) -> None:
    assert errors_of(parse_campaign, CAMPAIGN | fields) == errors


def test_a_campaign_that_is_no_object_is_refused() -> None:
    assert errors_of(parse_campaign, []) == [("wrong_type", "")]
