"""The policy check over HTTP with stores in memory: the decision, its inputs, and every error with its location."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator
from prometheus_client import CollectorRegistry

from starling_api.app import build_app
from starling_api.ports import Profile, ReportedProgress
from starling_common.telemetry.metrics import Metrics
from starling_policy.bounds import MAX_MESSAGES
from tests.unit.api.calls import call
from tests.unit.api.memory import World

Doc = dict[str, Any]
AS_OF = "2026-03-01T09:30:00.000Z"
AS_OF_MS = 1_772_357_400_000
CONSENTING = {"email": "ada@example.com", "consent": {"email": True}}
ONE_A_DAY = {"caps": [{"limit": 1, "per": "1d"}]}


def world(traits: Doc | None = None, timezones: str = "") -> World:
    made = World(timezones=timezones)
    made.audience.reported[0] = ReportedProgress(AS_OF_MS, {})
    made.audience.profiles["ada"] = Profile("ada", (), CONSENTING if traits is None else traits, None, 0)
    return made


def check(body: object, made: World | None = None, status: int = 200, role: str = "see") -> Any:
    answer: httpx.Response = call(made or world(), "POST", "/v1/policy/check", role=role, content=json.dumps(body))
    assert answer.status_code == status, answer.text
    return answer.json()


def asked(**fields: Any) -> Doc:
    return {"user": "ada", "channel": "email", "policy": {}, **fields}


def errors(body: object, made: World | None = None, status: int = 422) -> list[tuple[str, str]]:
    found = check(body, made, status)
    assert all(one["message"] and one["expected"] for one in found["errors"])
    return [(one["code"], one["pointer"]) for one in found["errors"]]


def test_a_message_that_nothing_prevents_is_sent_at_the_stream_time_of_the_read_models() -> None:
    found = check(asked())
    action = found["verdict"]  # vocabulary: verdict: a field of the contract
    assert (action, found["until"], found["reason"], found["reasons"]) == ("send", None, None, [])
    assert (found["at"], found["as_of"]) == (AS_OF, AS_OF)
    assert [one["check"] for one in found["checks"]][:2] == ["expiry", "cancellation"]
    assert found["checks"][0]["observed"] == {"due_at": AS_OF, "expires_at": "2026-03-02T09:30:00.000Z"}


def test_a_full_cap_defers_until_its_slot_is_free() -> None:
    found = check(asked(policy=ONE_A_DAY, messages=[{"at": "2026-03-01T08:00:00Z", "channel": "sms"}]))
    slot_at = "2026-03-02T08:00:00.000Z"
    action = found["verdict"]  # vocabulary: verdict: a field of the contract
    assert (action, found["until"], found["reason"], found["next_change_at"]) == ("defer", slot_at, "capped", slot_at)
    [caps] = [one for one in found["checks"] if one["check"] == "caps"]
    assert caps["observed"] == {"caps": [{"cap": 0, "limit": 1, "count": 1, "slot_at": slot_at}]}


def test_returned_slots_and_held_out_messages_do_not_count_for_caps() -> None:
    messages = [
        {"at": AS_OF, "channel": "email", "slot_returned": True},
        {"at": AS_OF, "channel": "email", "status": "held_out", "campaign": "other", "dedupe_key": "k"},
    ]
    assert check(asked(policy=ONE_A_DAY, messages=messages))["reason"] is None


def test_a_campaign_is_given_as_its_document() -> None:
    campaign = {"key": "win-back", "channel": "email", "reentry": "once", "trigger": {"enter": "vip"}, "holdout": {"percent": 100}}
    body = {"user": "ada", "policy": {}, "campaign": {**campaign, "variants": [{"key": "a", "weight": 100}]}}
    found = check(body)
    assert (found["reason"], found["variant"]) == ("holdout", "a")
    found = check({**body, "messages": [{"at": AS_OF, "channel": "email", "campaign": "win-back"}]})
    assert found["reasons"] == ["reentry", "holdout"]


def test_traits_come_from_the_profile_unless_they_are_given() -> None:
    assert check(asked(), world({}))["reasons"] == ["no_address", "no_consent"]
    assert check(asked(traits=CONSENTING), world({}))["reasons"] == []
    assert check(asked(user="grace"), status=404)["code"] == "unknown_user"
    assert check(asked(user="grace", traits=CONSENTING))["reasons"] == []


def test_devices_consent_and_suppressions_are_given() -> None:
    body = asked(channel="push", purpose="news", devices={"push": ["token-1"]})
    assert check(body)["reasons"] == ["no_consent"]
    granted = [{"channel": "push", "purpose": "news", "granted": True, "at": "2026-02-01T00:00:00Z"}]
    assert check({**body, "consent": granted})["reasons"] == []
    denied = {"channel": "push", "granted": False, "at": "2026-02-02"}
    assert check({**body, "consent": [*granted, denied]})["reasons"] == ["no_consent"]
    stopped = [{"channel": "email", "address": " ADA@example.com", "reason": "complaint"}]
    assert check(asked(suppressions=stopped))["reasons"] == ["suppressed"]
    assert check(asked(suppressions=stopped, purpose="transactional"))["reasons"] == []


def test_quiet_hours_use_the_zone_of_the_profile_then_of_the_policy_then_of_the_workspace() -> None:
    night = {"quiet_hours": {"from": "18:00", "to": "19:00"}}  # 09:30 UTC is 18:30 in Tokyo
    tokyo = "Asia/Tokyo"
    assert check(asked(policy=night))["reason"] is None
    assert check(asked(policy=night), world(timezones=f"acme={tokyo}"))["reason"] == "quiet_hours"
    assert check(asked(policy={**night, "timezone": "UTC"}), world(timezones=f"acme={tokyo}"))["reason"] is None
    assert check(asked(policy=night), world({**CONSENTING, "timezone": tokyo}))["until"] == "2026-03-01T10:00:00.000Z"


def test_the_instant_is_not_before_the_stream_time_and_the_history_not_after_it() -> None:
    assert check(asked(at=AS_OF))["at"] == AS_OF
    assert check(asked(at="2026-04-01"))["at"] == "2026-04-01T00:00:00.000Z"
    assert errors(asked(at="2026-03-01T09:29:59.999Z")) == [("out_of_range", "/at")]
    assert errors(asked(messages=[{"at": "2026-03-01T09:30:00.001Z", "channel": "email"}])) == [("out_of_range", "/messages")]


def test_before_the_first_event_the_instant_is_needed() -> None:
    assert errors(asked(traits={}), World()) == [("missing_field", "")]
    found = check(asked(traits={}, at=AS_OF), World())
    assert (found["at"], found["as_of"]) == (AS_OF, None)


def test_a_missing_policy_restricts_nothing_and_a_campaign_may_be_given_by_its_key() -> None:
    assert check({"user": "ada", "channel": "email"})["reason"] is None
    assert check({"user": "ada", "campaign": "win-back"}, status=404)["code"] == "unknown_campaign"


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"user": None}, [("missing_field", "")]),
        ({"user": ""}, [("wrong_type", "/user")]),
        ({"user": "ü" * 257}, [("wrong_type", "/user")]),
        ({"channel": None}, [("missing_field", "")]),
        ({"channel": "E-mail"}, [("bad_key", "/channel")]),
        ({"priority": 101}, [("out_of_range", "/priority")]),
        ({"campaign": {"key": "a"}}, [("unknown_field", "/channel"), ("missing_field", "/campaign")]),
        ({"segment": "vip"}, [("unknown_field", "/segment")]),
        ({"policy": []}, [("wrong_type", "/policy")]),
        ({"policy": {"caps": [{"limit": -1, "per": "1d"}]}}, [("out_of_range", "/policy/caps/0/limit")]),
        ({"at": 7}, [("bad_date", "/at")]),
        ({"at": "tomorrow"}, [("bad_date", "/at")]),
        ({"at": "2026-01-01" + "0" * 5000}, [("bad_date", "/at")]),
        ({"at": "9999-12-31T23:59:59Z"}, [("out_of_range", "/at")]),
        ({"at": "0001-01-01T00:00:00+14:00"}, [("out_of_range", "/at")]),
        ({"traits": []}, [("wrong_type", "/traits")]),
        ({"devices": []}, [("wrong_type", "/devices")]),
        ({"devices": {"push": "token"}}, [("wrong_type", "/devices/push")]),
        ({"devices": {"push": ["t"] * 11}}, [("wrong_type", "/devices/push")]),
        ({"devices": {f"c{number}": [] for number in range(33)}}, [("too_wide", "/devices")]),
        ({"consent": {}}, [("wrong_type", "/consent")]),
        ({"consent": [7]}, [("wrong_type", "/consent/0")]),
        ({"consent": [{}]}, [("missing_field", "/consent/0")] * 3),
        (
            {"consent": [{"channel": "email", "granted": "yes", "at": AS_OF, "who": "me"}]},
            [("unknown_field", "/consent/0/who"), ("wrong_type", "/consent/0/granted")],
        ),
        (
            {"suppressions": [{"channel": "email", "address": "", "reason": "spite"}]},
            [("wrong_type", "/suppressions/0/address"), ("wrong_type", "/suppressions/0/reason")],
        ),
        (
            {"messages": [{"at": AS_OF, "channel": "email", "status": "sent", "dedupe_key": "", "slot_returned": 1}]},
            [
                ("wrong_type", "/messages/0/dedupe_key"),
                ("wrong_type", "/messages/0/status"),
                ("wrong_type", "/messages/0/slot_returned"),
            ],
        ),
        ({"messages": [{}] * (MAX_MESSAGES + 1)}, [("too_wide", "/messages")]),
        ({"priority": 2**60}, [("out_of_range", "/priority")]),
    ],
)
def test_a_body_is_refused_with_all_locations(fields: Doc, wanted: list[tuple[str, str]]) -> None:
    assert errors(asked(**fields)) == wanted


def test_a_body_that_is_no_object_and_one_that_is_no_json() -> None:
    assert errors([]) == [("wrong_type", "")]
    assert call(world(), "POST", "/v1/policy/check", content="{").json()["code"] == "not_json"


def test_a_token_is_needed() -> None:
    assert check(asked(), role="unknown", status=401)["code"] == "unauthorized"


def test_the_examples_of_the_reference_are_valid() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/policy.md").read_text()
    example = page.split('```json title="check"\n')[1].split("```")[0]
    document = build_app(world().services, Metrics(CollectorRegistry()), dict).openapi()
    schema = {"$ref": "#/components/schemas/PolicyCheck", "components": document["components"]}
    Draft202012Validator(schema).validate(json.loads(example))
    found = check(json.loads(example))
    assert found["reason"] == "capped"
    Draft202012Validator({"$ref": "#/components/schemas/PolicyDecision", "components": document["components"]}).validate(found)
