"""The adapters: what they send, and what they read from the answers."""

import json
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

from starling_audience.adapters.adapter import Again, AudienceRequest, Ended, Refused, Response, Taken
from starling_audience.adapters.braze import Braze
from starling_audience.adapters.customerio import CustomerIo
from starling_audience.adapters.generic import Generic
from starling_audience.adapters.google import Google
from starling_audience.adapters.meta import Meta
from starling_audience.adapters.table import adapter_of
from starling_audience.identifiers import email_of, phone_of, sha256_hex, without_dots
from tests.unit.audience.making import BRAZE, CUSTOMERIO, EVERY, GOOGLE, HTTP, META, SECRET, body_of, change, target

NOW_MS = 1_700_000_000_000
MAIL: dict[str, Any] = {"email": "ada.l@gmail.com", "phone": "+4915112345678"}


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def response(status: int, document: object = None, retry_after: float | None = None) -> Response:
    return Response(status, b"" if document is None else json.dumps(document).encode(), retry_after)


def test_braze_gets_a_boolean_for_each_segment_and_one_object_for_each_user() -> None:
    changes = [change("ada"), change("bob", member=False), change("ada", "new", member=False)]
    [request] = Braze(BRAZE).requests(changes)
    assert (request.method, request.url) == ("POST", "https://rest.example.com/users/track")
    assert request.headers == {"content-type": "application/json", "authorization": "Bearer k"}
    assert body_of(request) == {
        "attributes": [
            {"external_id": "ada", "starling_vip": True, "starling_new": False},
            {"external_id": "bob", "_update_existing_only": True, "starling_vip": False},
        ]
    }
    assert request.changes == [changes[0], changes[2], changes[1]]


def test_braze_takes_75_users_in_a_request_and_names_the_attribute_of_the_target() -> None:
    requests = Braze({**BRAZE, "attribute": "in_"}).requests([change(f"u{number}") for number in range(160)])
    assert [len(body_of(request)["attributes"]) for request in requests] == [75, 75, 10]
    assert body_of(requests[2])["attributes"][0] == {"external_id": "u150", "in_vip": True}


def test_braze_reads_the_errors_of_single_objects() -> None:
    adapter = Braze(BRAZE)
    [request] = adapter.requests([change("ada"), change("bob")])
    errors = [
        {"type": "bad attribute", "input_array": "attributes", "index": 1},
        {"type": "of events", "input_array": "events", "index": 0},
        {"type": "beyond", "input_array": "attributes", "index": 2},
        {"type": "no number", "input_array": "attributes", "index": True},
    ]
    assert adapter.read(request, response(201, {"message": "success", "errors": errors})) == Taken({1: "bad attribute"})
    assert adapter.read(request, response(201, {"message": "success"})) == Taken()


def test_customerio_gets_one_operation_for_each_person() -> None:
    changes = [change("ada"), change("bob", member=False), change("ada", "new")]
    [request] = CustomerIo(CUSTOMERIO).requests(changes)
    assert (request.method, request.url) == ("POST", "https://track.customer.io/api/v2/batch")
    assert request.headers["authorization"] == "Basic " + b64encode(b"site:k").decode()
    assert body_of(request)["batch"] == [
        {
            "type": "person",
            "identifiers": {"id": "ada"},
            "action": "identify",
            "attributes": {"starling_vip": True, "starling_new": True},
        },
        {"type": "person", "identifiers": {"id": "bob"}, "action": "identify", "attributes": {"starling_vip": False}},
    ]


def test_customerio_takes_less_than_500_kb_in_a_request() -> None:
    changes = [change("u" * 400 + str(number)) for number in range(2_000)]
    requests = CustomerIo(CUSTOMERIO).requests(changes)
    assert len(requests) > 2
    assert max(len(request.body) for request in requests) < 500_000
    assert [one for request in requests for one in request.changes] == changes


def test_customerio_reads_the_errors_of_single_operations() -> None:
    adapter = CustomerIo(CUSTOMERIO)
    [request] = adapter.requests([change("ada"), change("bob")])
    errors = [{"batch_index": 0, "reason": "invalid", "field": "id", "message": "too long"}, {"batch_index": 9}]
    assert adapter.read(request, response(207, {"errors": errors})) == Taken({0: "id: invalid: too long"})
    assert adapter.read(request, response(200, {})) == Taken()
    refused = adapter.read(request, response(400, {"errors": [{"reason": "malformed"}]}))
    assert refused == Refused("Customer.io answered 400: malformed")


def test_meta_gets_hashes_of_one_audience_and_direction_in_a_request() -> None:
    changes = [
        change("ada", **MAIL),
        change("bob", member=False, email="bob@example.com"),
        change("cyd", "new", phone="+12025550100"),
        change("dan", member=False),
    ]
    requests = Meta(META).requests(changes)
    assert [(one.method, one.url.removeprefix("https://graph.facebook.com/v25.0")) for one in requests] == [
        ("POST", "/11/users"),
        ("DELETE", "/11/users"),
        ("POST", "/22/users"),
    ]
    assert requests[0].headers["authorization"] == "Bearer t"
    assert body_of(requests[0]) == {
        "payload": {
            "schema": ["EXTERN_ID", "EMAIL", "PHONE"],
            "data": [[digest("ada"), digest("ada.l@gmail.com"), digest("4915112345678")]],
        }
    }
    assert body_of(requests[1])["payload"]["data"] == [
        [digest("bob"), digest("bob@example.com"), ""],
        [digest("dan"), "", ""],
    ]
    assert all(word not in one.body.decode() for one in requests for word in ("ada.l", "example.com", "49151"))


def test_meta_takes_10_000_users_in_a_request() -> None:
    requests = Meta(META).requests([change(f"u{number}", email=f"u{number}@example.com") for number in range(10_001)])
    assert [len(body_of(one)["payload"]["data"]) for one in requests] == [10_000, 1]


def test_meta_needs_an_address_or_a_number_to_add_and_the_user_id_to_remove() -> None:
    adapter = Meta(META)
    assert not adapter.has_identifier(change("ada"))
    assert adapter.has_identifier(change("ada", member=False))
    assert adapter.has_identifier(change("ada", phone="+12025550100"))


def test_meta_reads_invalid_entries_by_their_hashes() -> None:
    adapter = Meta(META)
    changes = [change("ada", email="ada@example.com"), change("bob", email="bob@example.com")]
    [request] = adapter.requests(changes)
    samples = {"0": f'["{digest("bob")}","{digest("bob@example.com")}",""]'}
    answer = {"num_received": 2, "num_invalid_entries": 1, "invalid_entry_samples": samples}
    assert adapter.read(request, response(200, answer)) == Taken({1: "Meta reports an invalid entry"})
    every = adapter.read(request, response(200, {"num_received": 2, "num_invalid_entries": 2, "invalid_entry_samples": {}}))
    assert isinstance(every, Taken)
    assert set(every.rejected) == {0, 1}
    assert adapter.read(request, response(200, {"num_received": 2, "num_invalid_entries": 0})) == Taken()


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [(400, 190, Ended), (400, 200, Ended), (400, 17, Again), (400, 80003, Again), (400, 100, Refused), (500, 1, Again)],
)
def test_meta_has_codes_of_its_own(status: int, code: int, kind: type) -> None:
    adapter = Meta(META)
    [request] = adapter.requests([change("ada", email="ada@example.com")])
    answer = response(status, {"error": {"message": "no", "type": "OAuthException", "code": code}}, 7)
    assert isinstance(adapter.read(request, answer), kind)


def test_google_gets_hashes_in_hexadecimal() -> None:
    changes = [change("ada", **MAIL), change("bob", member=False, email="bob@example.com")]
    added, removed = Google(GOOGLE).requests(changes)
    assert added.url == "https://datamanager.googleapis.com/v1/audienceMembers:ingest"
    assert body_of(added) == {
        "destinations": [
            {
                "operatingAccount": {"accountType": "GOOGLE_ADS", "accountId": "123"},
                "loginAccount": {"accountType": "GOOGLE_ADS", "accountId": "99"},
                "productDestinationId": "777",
            }
        ],
        "audienceMembers": [
            {
                "userData": {
                    "userIdentifiers": [{"emailAddress": digest("adal@gmail.com")}, {"phoneNumber": digest("+4915112345678")}]
                }
            }
        ],
        "encoding": "HEX",
        "consent": {"adUserData": "CONSENT_GRANTED", "adPersonalization": "CONSENT_GRANTED"},
        "termsOfService": {"customerMatchTermsOfServiceStatus": "ACCEPTED"},
    }
    assert removed.url == "https://datamanager.googleapis.com/v1/audienceMembers:remove"
    assert body_of(removed).keys() == {"destinations", "audienceMembers", "encoding"}


def test_google_names_the_members_because_of_which_it_refuses_a_request() -> None:
    adapter = Google(GOOGLE)
    [request] = adapter.requests([change(f"u{number}", email=f"u{number}@example.com") for number in range(3)])
    violations = [
        {"field": "audience_members.audience_members[1].user_data.user_identifiers", "reason": "INVALID_HEX_ENCODING"},
        {"field": "audience_members.audience_members[7]", "reason": "BEYOND"},
        {"field": "encoding", "reason": "OTHER"},
    ]
    error = {"code": 400, "message": "a problem", "details": [{"@type": "x", "fieldViolations": violations}, {"reason": "y"}]}
    found = adapter.read(request, response(400, {"error": error}))
    assert found == Refused("Google answered 400: a problem", {1: "INVALID_HEX_ENCODING"})
    assert adapter.read(request, response(200, {"requestId": "r"})) == Taken()
    expired = {"error": {"status": "UNAUTHENTICATED", "details": [{"reason": "ACCESS_TOKEN_EXPIRED"}]}}
    assert isinstance(adapter.read(request, response(401, expired)), Again)
    assert isinstance(adapter.read(request, response(401, {"error": {"status": "UNAUTHENTICATED"}})), Ended)


def test_an_endpoint_gets_signed_items_with_the_same_id_at_each_attempt() -> None:
    changes = [change("ada", sequence=3, effective_at=NOW_MS), change("bob", member=False, sequence=2)]
    [first] = Generic(HTTP, "ads", lambda: NOW_MS).requests(changes)
    [second] = Generic(HTTP, "ads", lambda: NOW_MS + 60_000).requests(changes)
    assert body_of(first) == {
        "type": "audience.changed",
        "target": "ads",
        "items": [
            {"user_id": "ada", "segment": "vip", "member": True, "sequence": 3, "effective_at": "2023-11-14T22:13:20.000Z"},
            {"user_id": "bob", "segment": "vip", "member": False, "sequence": 2, "effective_at": "1970-01-01T00:00:00.000Z"},
        ],
    }
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.body == second.body
    assert first.headers["X-Token"] == "t"
    signed = Webhook(SECRET).sign(first.headers["webhook-id"], datetime.fromtimestamp(NOW_MS / 1000, UTC), first.body.decode())
    assert first.headers["webhook-signature"] == signed


def test_an_endpoint_may_reject_single_items() -> None:
    adapter = Generic(HTTP, "ads")
    [request] = adapter.requests([change("ada"), change("bob")])
    errors = [{"index": 1, "message": "unknown"}, {"index": 5, "message": "beyond"}, "no object"]
    assert adapter.read(request, response(200, {"errors": errors})) == Taken({1: "unknown"})
    assert adapter.read(request, Response(204)) == Taken()
    assert adapter.read(request, Response(200, b"no json")) == Taken()


@pytest.mark.parametrize("document", EVERY, ids=lambda one: one["adapter"])
@pytest.mark.parametrize(
    ("status", "kind"),
    [(200, Taken), (301, Again), (400, Refused), (401, Ended), (403, Ended), (408, Again), (410, Ended), (422, Refused),
     (429, Again), (500, Again), (503, Again)],
)  # fmt: skip
def test_the_status_decides_about_the_whole_request(document: Mapping[str, Any], status: int, kind: type) -> None:
    adapter = adapter_of(target(document))
    [request] = adapter.requests([change("ada", email="ada@example.com")])
    found = adapter.read(request, Response(status, b"<html>", 9.0))
    assert isinstance(found, kind)
    if status in {429, 503}:
        assert found == Again(f"{adapter.name} answered {status}", 9.0)


@pytest.mark.parametrize("document", EVERY, ids=lambda one: one["adapter"])
def test_no_representation_shows_an_identifier_or_a_credential(document: Mapping[str, Any]) -> None:
    found = target(document)
    [request] = adapter_of(found).requests([change("zoe", email="zoe@example.com", phone="+12025550100")])
    for shown in (repr(request), repr(request.changes), repr(found)):
        assert "zoe" not in shown
        assert "Bearer" not in shown
        assert "whsec" not in shown
    assert isinstance(request, AudienceRequest)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (" Ada.L@Example.COM ", "ada.l@example.com"), ("ada @example.com", "ada@example.com"), ("ada", None), ("ada@example", None),
        (7, None), (None, None), ("a@" + "b" * 400 + ".com", None),
    ],
)  # fmt: skip
def test_addresses_are_normalised(value: object, expected: str | None) -> None:
    assert email_of({"email": value}) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("+49 (151) 1234-5678", "+4915112345678"), ("0049 151 12345678", "+4915112345678"), ("0151 12345678", None),
        ("+0123456", None), ("+49", None), ("phone", None), (4915112345678, None),
    ],
)  # fmt: skip
def test_numbers_are_normalised_to_e164(value: object, expected: str | None) -> None:
    assert phone_of({"phone": value}) == expected


def test_google_ignores_dots_of_gmail_alone() -> None:
    assert without_dots("a.b.c@gmail.com") == "abc@gmail.com"
    assert without_dots("a.b@googlemail.com") == "ab@googlemail.com"
    assert without_dots("a.b@example.com") == "a.b@example.com"
    assert sha256_hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
