"""Targets of audience sync over HTTP: their fields, their secrets, and what cannot use them."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.contract.api.answers import faults
from tests.contract.api.conftest import Client
from tests.unit.audience.making import BRAZE, CUSTOMERIO, EVERY, GOOGLE, HTTP, META

Document = dict[str, Any]
SECRETS = {"api_key", "token", "private_key", "secret"}


@pytest.fixture
def segments(client: Client) -> None:
    for key in ("vip", "new"):
        answer = client.call("POST", "/v1/segments", {"key": key, "name": key, "where": {"event": "Order Completed"}})
        assert answer.status_code == 201, answer.text


@pytest.mark.usefixtures("segments")
@pytest.mark.parametrize("document", EVERY, ids=lambda one: one["adapter"])
def test_a_target_of_each_adapter_is_created_shown_and_changed_without_its_secrets(
    client: Client, document: Mapping[str, Any]
) -> None:
    made = client.call("POST", "/v1/targets", {"key": "ads", **document})
    assert made.status_code == 201, made.text
    shown = client.call("GET", "/v1/targets/ads").json()
    for name, value in document.items():
        if name == "headers":
            assert shown[name] == dict.fromkeys(value, "***")
        else:
            assert shown[name] == ("***" if name in SECRETS else value)
    assert (shown["status"], shown["version"]) == ("active", 1)
    same = client.call("PUT", "/v1/targets/ads", shown)
    assert same.status_code == 200, same.text
    assert same.json()["version"] == 1, "masked secrets keep their values"
    changed = {**shown, "segments": ["vip"]} | ({"audiences": {"vip": "333"}} if "audiences" in document else {"name": "Ads"})
    assert client.call("PUT", "/v1/targets/ads", changed).status_code == 200
    assert client.call("POST", "/v1/targets/ads/enable").status_code == 200
    assert client.call("DELETE", "/v1/targets/ads").status_code == 204
    assert client.call("GET", "/v1/targets/ads").json()["status"] == "archived"


@pytest.mark.usefixtures("segments")
def test_an_endpoint_gets_a_secret_which_only_the_first_response_has(client: Client) -> None:
    body = {"key": "crm", **{name: value for name, value in HTTP.items() if name != "secret"}}
    assert client.call("POST", "/v1/targets", body).json()["secret"].startswith("whsec_")
    assert client.call("GET", "/v1/targets/crm").json()["secret"] == "***"


@pytest.mark.usefixtures("segments")
@pytest.mark.parametrize(
    ("base", "change", "expected"),
    [
        (BRAZE, {"segments": ["vip", "none"]}, ("/segments/1", "unknown_segment")),
        (BRAZE, {"segments": []}, ("/segments", "wrong_type")),
        (BRAZE, {"segments": ["vip", "vip"]}, ("/segments", "wrong_type")),
        (BRAZE, {"segments": [f"s{number}" for number in range(101)]}, ("/segments", "wrong_type")),
        (BRAZE, {"segments": None}, ("", "missing_field")),
        (BRAZE, {"api_key": None}, ("", "missing_field")),
        (BRAZE, {"base_url": None}, ("", "missing_field")),
        (BRAZE, {"adapter": "mailchimp"}, ("/adapter", "wrong_type")),
        (BRAZE, {"token": "t"}, ("/token", "wrong_type")),
        (BRAZE, {"attribute": "$x"}, ("/attribute", "wrong_type")),
        (CUSTOMERIO, {"base_url": "ftp://track.example.com"}, ("/base_url", "wrong_type")),
        (META, {"audiences": {"vip": "1"}}, ("/audiences", "missing_field")),
        (META, {"audiences": {"vip": "1", "new": "2", "old": "3"}}, ("/audiences/old", "unknown_field")),
        (META, {"audiences": {"vip": "1", "new": "a/b"}}, ("/audiences/new", "wrong_type")),
        (GOOGLE, {"account_id": "123-456"}, ("/account_id", "wrong_type")),
        (HTTP, {"headers": {"Host": "a"}}, ("/headers", "wrong_type")),
        (HTTP, {"headers": {"X-A": "a\nb"}}, ("/headers/X-A", "wrong_type")),
    ],
)
def test_a_field_that_does_not_fit_is_refused_with_its_pointer(
    client: Client, base: Mapping[str, Any], change: Document, expected: tuple[str, str]
) -> None:
    answer = client.call("POST", "/v1/targets", {"key": "ads", **base, **change})
    assert answer.status_code == 422
    assert expected in faults(answer)


@pytest.mark.usefixtures("segments")
def test_a_target_is_disabled_and_enabled_and_its_test_is_refused(client: Client) -> None:
    assert client.call("POST", "/v1/targets", {"key": "ads", **BRAZE}).status_code == 201
    refused = client.call("POST", "/v1/targets/ads/test")
    assert refused.status_code == 422
    assert ("/channel", "wrong_type") in faults(refused)
    assert "a test would change the audience" in refused.text
    assert client.call("POST", "/v1/targets/ads/disable").json()["status"] == "disabled"
    assert client.call("POST", "/v1/targets/ads/enable").json()["status"] == "active"


@pytest.mark.usefixtures("segments")
def test_another_adapter_keeps_no_secret(client: Client) -> None:
    assert client.call("POST", "/v1/targets", {"key": "ads", **BRAZE}).status_code == 201
    body = {name: value for name, value in CUSTOMERIO.items() if name != "api_key"}
    answer = client.call("PUT", "/v1/targets/ads", body)
    assert answer.status_code == 422
    assert ("", "missing_field") in faults(answer)


@pytest.mark.usefixtures("segments")
@pytest.mark.parametrize("channel", ["email", "push", "sms", "webhook"])
def test_a_campaign_cannot_use_such_a_target(client: Client, channel: str) -> None:
    assert client.call("POST", "/v1/targets", {"key": "ads", **BRAZE}).status_code == 201
    content = {
        "email": {"subject": "a", "text": "b"}, "push": {"title": "a", "body": "b"}, "sms": {"text": "a"},
        "webhook": {"body": "{}"},
    }[channel]  # fmt: skip
    campaign = {
        "key": "win-back", "name": "Win back", "trigger": {"enter": "vip"}, "channel": channel, "target": "ads",
        "variants": [{"key": "a", "weight": 100, "content": content}],
    }  # fmt: skip
    answer = client.call("POST", "/v1/campaigns", campaign)
    assert answer.status_code == 422
    assert "/target" in {pointer for pointer, _ in faults(answer)}
