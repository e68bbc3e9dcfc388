"""Documents of campaigns, policies and targets: what is accepted, and every error with its pointer, code and cure."""

from typing import Any

import pytest

from starling_campaigns import (
    References,
    assignment_of,
    frozen_errors,
    parse_campaign,
    parse_stored_policy,
    parse_target,
    shown_target,
    state_after,
    target_schema,
    unmasked_target,
)
from starling_campaigns.definitions.targets import CHANNEL_FIELDS, CHANNEL_VARIANTS, MASK
from starling_campaigns.definitions.triggers import BroadcastTrigger, EventTrigger, MembershipTrigger
from starling_segments import DefinitionRefused
from starling_segments.engine.trait_conditions import share_of
from tests.campaign_documents import CONTENTS, REFERENCES, TARGETS, TRIGGERS, campaign, full_campaign, with_template

KEY_PEM = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
SMTP = {
    "key": "main-smtp",
    "channel": "email",
    "host": "smtp.example.com",
    "port": 587,
    "tls": "starttls",
    "from": "Shop <shop@example.com>",
    "username": "shop",
    "password": "s3cret",
    "dkim": {"domain": "example.com", "selector": "s1", "private_key": KEY_PEM},
}
VALID_TARGETS: list[dict[str, Any]] = [
    SMTP,
    {"key": "a", "channel": "webpush", "subject": "mailto:ops@example.com", "private_key": "AbC_-9"},
    {"key": "a", "channel": "fcm", "project_id": "shop-1", "client_email": "a@shop.example.com", "private_key": KEY_PEM},
    {
        "key": "a",
        "channel": "apns",
        "team_id": "T",
        "key_id": "K",
        "topic": "com.example.app",
        "environment": "sandbox",
        "private_key": KEY_PEM,
    },
    {
        "key": "a",
        "channel": "sms",
        "base_url": "https://sms.example.com",
        "account_sid": "AC1",
        "auth_token": "s3cret",
        "from": "+4915112345678",
    },
    {"key": "a", "channel": "webhook", "url": "https://hooks.example.com/a", "format": "standard"},
    {
        "key": "a",
        "channel": "slack",
        "url": "https://hooks.example.com/secret",
        "segments": ["vips"],
        "title": "VIPs",
        "interval_seconds": 300,
    },
    {"key": "a", "channel": "teams", "url": "https://hooks.example.com/secret", "segments": ["vips", "lapsing-vips"]},
    {
        "key": "a",
        "channel": "kafka",
        "topic": "audience.changes",
        "segments": ["vips"],
        "format": "json",
        "bootstrap_servers": "kafka.example.com:9093",
        "security": {"protocol": "sasl_ssl", "mechanism": "SCRAM-SHA-512", "username": "starling", "password": "s3cret"},
    },
    {
        "key": "a",
        "channel": "audience",
        "adapter": "braze",
        "segments": ["vip"],
        "base_url": "https://rest.example.com",
        "api_key": "s3cret",
    },
    {"key": "a", "channel": "audience", "adapter": "customerio", "segments": ["vip"], "site_id": "site", "api_key": "s3cret"},
    {"key": "a", "channel": "audience", "adapter": "meta", "segments": ["vip"], "token": "s3cret", "audiences": {"vip": "238"}},
    {
        "key": "a",
        "channel": "audience",
        "adapter": "google",
        "segments": ["vip"],
        "client_email": "sync@project.iam.gserviceaccount.com",
        "private_key": "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        "account_id": "1234567890",
        "audiences": {"vip": "777"},
    },
    {
        "key": "a",
        "channel": "audience",
        "adapter": "http",
        "segments": ["vip"],
        "url": "https://crm.example.com/audiences",
        "headers": {"X-Token": "s3cret"},
        "secret": "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz",
    },
]


def errors(document: Any, references: References = REFERENCES) -> list[tuple[str, str]]:
    with pytest.raises(DefinitionRefused) as refused:
        parse_campaign(document, references)
    return [(error.pointer, error.code) for error in refused.value.errors]


@pytest.mark.parametrize("channel", list(CONTENTS))
def test_a_campaign_of_each_channel_is_accepted(channel: str) -> None:
    parsed = parse_campaign(campaign(channel), REFERENCES)
    assert parsed.channel.name == channel
    assert parsed.target == TARGETS[channel]
    assert (parsed.delay_ms, parsed.cancel.left, parsed.goal, parsed.rules.expires_after_ms) == (0, True, None, 86_400_000)


def test_every_field_is_read() -> None:
    parsed = parse_campaign(full_campaign(), REFERENCES)
    assert parsed.trigger == MembershipTrigger("lapsing-vips", entered=True)
    assert parsed.delay_ms == 7_200_000
    assert parsed.cancel.event is not None
    assert parsed.cancel.event.name == "Order Completed"
    assert parsed.goal is not None
    assert (parsed.goal.within_ms, parsed.goal.value) == (7 * 86_400_000, "revenue")
    assert (parsed.rules.reentry_ms, parsed.rules.holdout_share, parsed.rules.caps) == (30 * 86_400_000, 1_000, "drop")
    assert [(variant.key, variant.share) for variant in parsed.rules.variants] == [("a", 5_050), ("b", 4_950)]


def test_each_trigger_is_read() -> None:
    exit_, event, at, local = (parse_campaign(campaign(trigger=one), REFERENCES).trigger for one in TRIGGERS[1:])
    assert exit_ == MembershipTrigger("vips", entered=False, on_definition=True)
    assert isinstance(event, EventTrigger)
    assert (event.event.name, event.while_segment) == ("Order Completed", "vips")
    assert at == BroadcastTrigger("vips", at_ms=1_796_115_600_000)
    assert local == BroadcastTrigger("vips", local="2026-12-01T09:00")


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"key": "A b"}, [("/key", "bad_key")]),
        ({"name": None}, [("", "missing_field")]),
        ({"colour": 1}, [("/colour", "unknown_field")]),
        ({"trigger": None}, [("", "missing_field")]),
        ({"trigger": {"enter": "none"}}, [("/trigger/enter", "unknown_segment")]),
        ({"trigger": {"enter": "old"}}, [("/trigger/enter", "unknown_segment")]),
        ({"trigger": {"enter": "vips", "exit": "vips"}}, [("/trigger", "wrong_type")]),
        ({"trigger": {"enter": "vips", "while": "vips"}}, [("/trigger/while", "unknown_field")]),
        ({"trigger": {"event": {"event": ""}}}, [("/trigger/event/event", "wrong_type")]),
        (
            {"trigger": {"event": {"event": "X", "where": {"property": "a", "op": "like"}}}},
            [("/trigger/event/where/op", "unknown_operator")],
        ),
        ({"trigger": {"broadcast": "vips"}}, [("/trigger", "missing_field")]),
        ({"trigger": {"broadcast": "vips", "at": "2026-12-01T09:00"}}, [("/trigger/at", "bad_date")]),
        ({"trigger": {"broadcast": "vips", "local": "2026-02-30T09:00"}}, [("/trigger/local", "bad_date")]),
        ({"delay": "91d"}, [("/delay", "out_of_range")]),
        ({"delay": "soon"}, [("/delay", "bad_duration")]),
        ({"expires_after": "8d"}, [("/expires_after", "out_of_range")]),
        ({"expires_after": "0s"}, [("/expires_after", "bad_duration")]),
        ({"priority": 101}, [("/priority", "out_of_range")]),
        ({"quiet": "ignore"}, [("/quiet", "wrong_type")]),
        ({"reentry": {"after": "1y"}}, [("/reentry/after", "bad_duration")]),
        ({"channel": "fax"}, [("/channel", "wrong_type")]),
        ({"target": "old-smtp"}, [("/target", "unknown_target")]),
        ({"target": "nowhere"}, [("/target", "unknown_target")]),
        ({"target": "texts"}, [("/target", "unknown_target")]),
        ({"holdout": {"percent": 101}}, [("/holdout/percent", "out_of_range")]),
        ({"holdout": {"percent": 0.001}}, [("/holdout/percent", "out_of_range")]),
        ({"goal": {"event": "X", "within": "31d"}}, [("/goal/within", "out_of_range")]),
        ({"goal": {"event": "X"}}, [("/goal", "missing_field")]),
        ({"rate": 10}, [("/rate", "unknown_field")]),
        ({"cancel": {"left": "yes"}}, [("/cancel/left", "wrong_type")]),
        ({"variants": None}, [("", "missing_field")]),
        ({"variants": [{"key": "a", "weight": 99, "content": CONTENTS["email"]}]}, [("/variants", "out_of_range")]),
        ({"variants": [{"key": "a", "weight": 100}]}, [("/variants/0", "missing_field")]),
        ({"variants": [{"key": "a", "weight": 100, "content": {"subject": "x"}}]}, [("/variants/0/content", "missing_field")]),
        ({"variants": [{"key": "a", "weight": 100, "content": {"text": "x"}}]}, [("/variants/0/content", "missing_field")]),
        (
            {"variants": [{"key": "a", "weight": 100, "content": CONTENTS["email"], "locales": {"pt_br": {"subject": "x"}}}]},
            [("/variants/0/locales/pt_br", "bad_locale")],
        ),
    ],
)
def test_an_error_names_its_place_and_code(changed: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    document = {name: value for name, value in {**campaign(), **changed}.items() if value is not None}
    assert errors(document) == expected


def test_all_errors_of_a_document_come_at_once() -> None:
    document = campaign(delay="100d", goal={"event": "X", "within": "40d"}, target="nowhere", trigger={"enter": "none"})
    document["variants"][0]["content"]["subject"] = "a\nb {{ x }}"
    assert set(errors(document)) == {
        ("/delay", "out_of_range"),
        ("/goal/within", "out_of_range"),
        ("/target", "unknown_target"),
        ("/trigger/enter", "unknown_segment"),
        ("/variants/0/content/subject", "bad_template"),
    }
    assert len(errors(document)) == 6


def test_a_delay_can_be_nothing_and_a_key_must_be_new() -> None:
    assert parse_campaign(campaign(delay="0s"), REFERENCES).delay_ms == 0
    taken = References(REFERENCES.known, REFERENCES.targets, taken_keys=frozenset({"win-back"}))
    assert errors(campaign(), taken) == [("/key", "key_taken")]


def test_variants_and_holdout_are_the_hash_of_bucket_conditions() -> None:
    parsed = parse_campaign(full_campaign(), REFERENCES)
    for user in map(str, range(300)):
        found = assignment_of(parsed, user)
        assert found.variant == ("a" if share_of("win-back:variant", user) < 50.5 else "b")
        assert found.held_out == (share_of("win-back:holdout", user) < 10)


@pytest.mark.parametrize(
    ("changed", "pointers"),
    [
        ({"name": "Other", "delay": "1h", "quiet": "drop"}, []),
        ({"expires_after": "1d", "holdout": {"percent": 10.0}}, []),
        ({"trigger": {"enter": "vips"}}, ["/trigger"]),
        ({"holdout": None}, ["/holdout"]),
        ({"channel": "sms", "target": "texts", "variants": campaign("sms")["variants"]}, ["/channel", "/variants"]),
    ],
)
def test_fields_are_frozen_after_the_activation(changed: dict[str, Any], pointers: list[str]) -> None:
    document = {name: value for name, value in {**full_campaign(), **changed}.items() if value is not None}
    found = frozen_errors(parse_campaign(full_campaign(), REFERENCES), parse_campaign(document, REFERENCES))
    assert [(error.pointer, error.code) for error in found] == [(pointer, "frozen_field") for pointer in pointers]


def test_everything_of_a_broadcast_is_frozen() -> None:
    before = parse_campaign(campaign(trigger=TRIGGERS[3]), REFERENCES)
    assert frozen_errors(before, before) == ()
    after = parse_campaign(campaign(trigger=TRIGGERS[3], expires_after="1h"), REFERENCES)
    assert [error.code for error in frozen_errors(before, after)] == ["frozen_field"]


def test_the_states_of_a_campaign() -> None:
    assert state_after("activate", "draft") == "active"
    assert state_after("pause", "active") == "paused"
    assert state_after("resume", "paused") == "active"
    assert state_after("pause", "draft") is None
    assert state_after("activate", "archived") is None


@pytest.mark.parametrize("document", VALID_TARGETS, ids=lambda one: one["channel"])
def test_a_target_of_each_channel_is_accepted_and_hides_its_secrets(document: dict[str, Any]) -> None:
    target = parse_target(document)
    shown = shown_target(document)
    secrets = [name for name, field in CHANNEL_FIELDS[target.channel].items() if field.secret and name in document]
    assert all(shown[name] == MASK for name in secrets)
    assert all(str(document[name]) not in repr(target) for name in secrets)
    assert unmasked_target(shown, document) == document


def test_the_targets_of_every_channel_are_tested() -> None:
    assert list(dict.fromkeys(one["channel"] for one in VALID_TARGETS)) == list(CHANNEL_FIELDS)
    adapters = [one["adapter"] for one in VALID_TARGETS if one["channel"] == "audience"]
    assert adapters == list(CHANNEL_VARIANTS["audience"])
    assert len(target_schema()["anyOf"]) == len(CHANNEL_FIELDS)


def test_a_secret_inside_an_object_is_hidden_and_kept() -> None:
    shown = shown_target(SMTP)
    assert shown["dkim"] == {"domain": "example.com", "selector": "s1", "private_key": MASK}
    changed = {**shown, "host": "other.example.com", "dkim": {"domain": "example.org", "selector": "s2"}}
    assert unmasked_target(changed, SMTP)["dkim"] == {"domain": "example.org", "selector": "s2", "private_key": KEY_PEM}
    assert unmasked_target({**shown, "password": None}, SMTP)["password"] is None


@pytest.mark.parametrize(
    ("changed", "pointer"),
    [
        ({"channel": "fax"}, "/channel"),
        ({"port": 0}, "/port"),
        ({"tls": "ssl"}, "/tls"),
        ({"from": "shop\r\nBcc: all@example.com"}, "/from"),
        ({"password": MASK}, "/password"),
        ({"auth_token": "x"}, "/auth_token"),
        ({"dkim": {"domain": "example.com", "selector": "s", "private_key": "x"}}, "/dkim/private_key"),
    ],
)
def test_an_error_of_a_target_names_its_place(changed: dict[str, Any], pointer: str) -> None:
    with pytest.raises(DefinitionRefused) as refused:
        parse_target({**SMTP, **changed})
    assert [error.pointer for error in refused.value.errors] == [pointer]


FEED = {"key": "a", "channel": "slack", "url": "https://hooks.example.com/a", "segments": ["vips"]}
MIRROR = {"key": "a", "channel": "kafka", "topic": "t", "segments": ["vips"]}


@pytest.mark.parametrize(
    ("document", "found"),
    [
        ({**FEED, "segments": []}, [("/segments", "wrong_type")]),
        ({**FEED, "segments": ["vips", "vips"]}, [("/segments", "wrong_type")]),
        ({**FEED, "segments": [f"s{number}" for number in range(101)]}, [("/segments", "wrong_type")]),
        ({**FEED, "segments": ["vips", "old", "none"]}, [("/segments/1", "unknown_segment"), ("/segments/2", "unknown_segment")]),
        ({name: value for name, value in FEED.items() if name != "segments"}, [("", "missing_field")]),
        ({**FEED, "interval_seconds": 9}, [("/interval_seconds", "wrong_type")]),
        ({**FEED, "interval_seconds": 3601}, [("/interval_seconds", "wrong_type")]),
        ({**FEED, "title": "a\nb"}, [("/title", "wrong_type")]),
        ({**FEED, "topic": "t"}, [("/topic", "unknown_field")]),
        ({**MIRROR, "format": "xml"}, [("/format", "wrong_type")]),
        ({**MIRROR, "security": {"protocol": "ssl"}}, [("", "missing_field")]),
        ({**MIRROR, "bootstrap_servers": "k:1", "security": {"protocol": "sasl_ssl"}}, [("/security", "missing_field")] * 3),
        (
            {**MIRROR, "bootstrap_servers": "k:1", "security": {"protocol": "plaintext", "username": "a"}},
            [("/security/username", "wrong_type")],
        ),
    ],
)
def test_an_error_of_a_feed_names_its_place(document: dict[str, Any], found: list[tuple[str, str]]) -> None:
    with pytest.raises(DefinitionRefused) as refused:
        parse_target(document, references=REFERENCES)
    assert [(error.pointer, error.code) for error in refused.value.errors] == found


def test_the_segments_of_a_stored_feed_are_not_compared() -> None:
    assert parse_target({**FEED, "segments": ["old", "none"]}).settings["segments"] == ["old", "none"]
    assert parse_target(FEED, references=REFERENCES).settings == {"url": FEED["url"], "segments": ["vips"]}


@pytest.mark.parametrize("channel", ["slack", "teams", "kafka"])
def test_no_campaign_has_the_target_of_a_feed(channel: str) -> None:
    references = References(REFERENCES.known, {**REFERENCES.targets, "main-smtp": channel})
    assert [pointer for pointer, _ in errors(campaign(), references)] == ["/target"]
    assert "/channel" in [pointer for pointer, _ in errors(campaign(channel), references)]


SES = {"provider": "ses", "topic_arn": "arn:aws:sns:eu-central-1:123456789012:mails", "configuration_set": "shop"}
SENDGRID = {"provider": "sendgrid", "public_key": "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE" + "A" * 86 + "=="}
DSN = {"provider": "dsn", "secret": "0123456789abcdef"}


@pytest.mark.parametrize("callbacks", [SES, SENDGRID, DSN], ids=lambda one: one["provider"])
def test_a_mail_target_takes_the_callbacks_of_its_provider(callbacks: dict[str, Any]) -> None:
    document = {**SMTP, "callbacks": callbacks}
    assert parse_target(document).settings["callbacks"] == callbacks
    shown = shown_target(document)
    assert shown["callbacks"].get("secret") == (MASK if "secret" in callbacks else None)
    assert unmasked_target(shown, document) == document


@pytest.mark.parametrize(
    ("callbacks", "pointer", "text"),
    [
        ("ses", "/callbacks", "is not"),
        ({}, "/callbacks", "'provider' is missing"),
        ({"provider": "mailgun"}, "/callbacks/provider", "not valid"),
        ({"provider": "ses"}, "/callbacks", "'topic_arn' is missing for ses"),
        ({**SES, "topic_arn": "arn:aws:sqs:eu-central-1:123456789012:mails"}, "/callbacks/topic_arn", "not valid"),
        ({**SES, "secret": "0123456789abcdef"}, "/callbacks/secret", "does not go with ses"),
        ({"provider": "sendgrid", "public_key": "abc"}, "/callbacks/public_key", "not valid"),
        ({"provider": "dsn"}, "/callbacks", "'secret' is missing for dsn"),
        ({"provider": "dsn", "secret": "short"}, "/callbacks/secret", "not valid"),
        ({**DSN, "url": "https://example.com"}, "/callbacks/url", "unknown field"),
    ],
)
def test_an_error_in_callbacks_names_its_place(callbacks: Any, pointer: str, text: str) -> None:
    with pytest.raises(DefinitionRefused) as refused:
        parse_target({**SMTP, "callbacks": callbacks})
    [error] = refused.value.errors
    assert (error.pointer, text in error.message) == (pointer, True), error.message


def test_another_provider_keeps_no_secret() -> None:
    before = {**SMTP, "callbacks": DSN}
    assert unmasked_target({**SMTP, "callbacks": SES}, before)["callbacks"] == SES
    assert unmasked_target({**SMTP, "callbacks": {"provider": "dsn"}}, before)["callbacks"] == DSN


def test_a_stored_policy_refuses_a_cap_of_nothing_with_all_other_errors() -> None:
    assert parse_stored_policy({"caps": [{"limit": 1, "per": "1d"}]}).caps[0].limit == 1
    with pytest.raises(DefinitionRefused) as refused:
        parse_stored_policy({"timezone": "Mars/Base", "caps": [{"limit": 0, "per": "1d"}]})
    assert [error.pointer for error in refused.value.errors] == ["/timezone", "/caps/0/limit"]


def test_a_template_bomb_is_refused_with_its_line() -> None:
    with pytest.raises(DefinitionRefused) as refused:
        parse_campaign(with_template("hello\n{{ 'a' * 999999999 }}"), REFERENCES)
    (error,) = refused.value.errors
    assert (error.pointer, error.code, error.message) == (
        "/variants/0/content/text",
        "bad_template",
        "line 2: * is not allowed in a template",
    )
