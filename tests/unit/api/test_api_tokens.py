"""API tokens: who may do what, and where a secret appears."""

from typing import Any

import httpx
import pytest

from starling_api.credentials.commands import MAX_CREDENTIALS
from starling_api.http.access.auth import ROLES, Role, Tokens
from starling_api.http.openapi.bodies import body_schemas
from starling_common.records.credentials import Credential, Secret, secret_key, secret_record
from tests.unit.api.calls import SEGMENT, call
from tests.unit.api.memory import World

DAY_MICROS = 86_400_000_000
BODY = {"name": "ci", "role": "editor"}


def created(world: World, **more: Any) -> dict[str, Any]:
    answer = call(world, "POST", "/v1/tokens", json=BODY | more)
    assert answer.status_code == 201, answer.text
    assert answer.headers["cache-control"] == "no-store"
    found: dict[str, Any] = answer.json()
    return found


def status_with(world: World, secret: str, method: str = "GET", path: str = "/v1/segments", **more: Any) -> int:
    return call(world, method, path, role=secret, **more).status_code


def code_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


@pytest.mark.parametrize(
    ("role", "allowed"),
    [
        (Role.VIEWER, {Role.VIEWER}),
        (Role.EDITOR, {Role.VIEWER, Role.EDITOR}),
        (Role.APPROVER, {Role.VIEWER, Role.APPROVER}),
        (Role.ADMIN, {Role.VIEWER, Role.EDITOR, Role.APPROVER, Role.ADMIN}),
    ],
)
def test_what_a_role_includes(role: Role, allowed: set[Role]) -> None:
    assert {other for other in Role if role.includes(other)} == allowed


def test_the_document_has_the_names_of_every_role() -> None:
    assert body_schemas()["TokenRequest"]["properties"]["role"]["enum"] == list(ROLES)


def test_settings_accept_every_name_of_a_role() -> None:
    tokens = Tokens("a=viewer:w,b=marketer:w,c=editor:w,d=approver:w,e=admin:w")
    found = [tokens.caller(token) for token in "abcde"]
    assert [one.role for one in found if one] == [Role.VIEWER, Role.EDITOR, Role.EDITOR, Role.APPROVER, Role.ADMIN]
    assert [one.name.partition("-")[0] for one in found if one] == ["viewer", "marketer", "editor", "approver", "admin"]
    with pytest.raises(ValueError, match="token 2: expected token=role:workspace with a role of viewer, editor, approver"):
        Tokens("a=viewer:w,hidden=owner:w")


def test_an_approver_reads_and_does_not_edit() -> None:
    assert call(World(), "GET", "/v1/segments", role="approve").status_code == 200
    refused = call(World(), "POST", "/v1/segments", role="approve", json=SEGMENT)
    assert code_of(refused) == (403, "forbidden")
    assert refused.json()["message"] == "the call needs the role editor; the token's role is approver"


def test_the_life_of_a_token() -> None:
    world = World()
    token = created(world)
    secret = token.pop("secret")
    assert (token["prefix"], token["last4"]) == (secret[:8], secret[-4:])
    assert (token["role"], token["expires_at"], token["revoked"], token["previous_secret_expires_at"]) == (
        "editor",
        None,
        False,
        None,
    )
    assert token["created_by"].startswith("admin-")
    assert call(world, "GET", "/v1/tokens").json()["items"] == [token]
    assert call(world, "GET", f"/v1/tokens/{token['id']}").json() == token
    assert status_with(world, secret, "POST", json=SEGMENT) == 201
    assert world.published[-1].actor == token["id"]
    assert status_with(world, secret, path="/v1/tokens") == 403

    assert call(world, "DELETE", f"/v1/tokens/{token['id']}").status_code == 204
    assert call(world, "DELETE", f"/v1/tokens/{token['id']}").status_code == 204
    assert status_with(world, secret) == 401
    shown = call(world, "GET", f"/v1/tokens/{token['id']}").json()
    assert (shown["revoked"], shown["revoked_at"] is not None) == (True, True)
    assert code_of(call(world, "POST", f"/v1/tokens/{token['id']}/rotate")) == (409, "revoked")


def test_a_rotated_secret_works_until_the_end_of_the_overlap() -> None:
    world = World()
    old = created(world)
    new = call(world, "POST", f"/v1/tokens/{old['id']}/rotate", json={"overlap": "2d"}).json()
    assert new["secret"] != old["secret"]
    assert (new["id"], new["role"], new["expires_at"]) == (old["id"], "editor", None)
    assert new["previous_secret_expires_at"] is not None
    assert [status_with(world, one["secret"]) for one in (old, new)] == [200, 200]
    world.micros += 2 * DAY_MICROS
    assert [status_with(world, one["secret"]) for one in (old, new)] == [401, 200]
    assert call(world, "GET", f"/v1/tokens/{old['id']}").json()["previous_secret_expires_at"] is None

    third = call(world, "POST", f"/v1/tokens/{old['id']}/rotate", json={"overlap": "0s"}).json()
    assert [status_with(world, one["secret"]) for one in (old, new, third)] == [401, 401, 200]
    assert [key for key, record in world.created_tokens.records if record is None]  # the record of the expired secret is removed
    # A later overlap does not extend an earlier end.
    call(world, "POST", f"/v1/tokens/{old['id']}/rotate", json={"overlap": "30d"})
    assert status_with(world, new["secret"]) == 401


def test_an_expired_token_is_refused_and_keeps_its_expiry_in_a_rotation() -> None:
    world = World()
    expiry = "1970-01-02T00:00:00.000Z"
    token = created(world, expires_at=expiry)
    rotated = call(world, "POST", f"/v1/tokens/{token['id']}/rotate").json()
    assert token["expires_at"] == rotated["expires_at"] == rotated["previous_secret_expires_at"] == expiry
    world.micros = DAY_MICROS
    assert [status_with(world, one["secret"]) for one in (token, rotated)] == [401, 401]
    assert code_of(call(world, "POST", f"/v1/tokens/{token['id']}/rotate")) == (409, "expired")


def test_a_secret_appears_in_one_response_only() -> None:
    world = World()
    first = call(world, "POST", "/v1/tokens", json=BODY, headers={"Idempotency-Key": "k"}).json()
    again = call(world, "POST", "/v1/tokens", json=BODY, headers={"Idempotency-Key": "k"})
    assert again.json() == first | {"secret": None}
    assert again.headers["cache-control"] == "no-store"
    path = f"/v1/tokens/{first['id']}/rotate"
    rotated = call(world, "POST", path, json={}, headers={"Idempotency-Key": "r"}).json()
    assert call(world, "POST", path, json={}, headers={"Idempotency-Key": "r"}).json()["secret"] is None
    assert call(world, "POST", path, json={"overlap": "1h"}, headers={"Idempotency-Key": "r"}).status_code == 422
    for secret in (first["secret"], rotated["secret"]):
        assert secret not in repr(world.answers.kept)
        assert secret not in repr(world.created_tokens.records)
        assert secret not in call(world, "GET", "/v1/tokens").text


def test_a_secret_that_is_sent_in_a_body_is_not_repeated() -> None:
    for body in ({"secret-planted": 1}, {"name": ["secret-planted"], "role": "editor"}, {"name": "a", "role": "secret-planted"}):
        refused = call(World(), "POST", "/v1/tokens", json=body)
        assert refused.status_code == 422
        assert "secret-planted" not in refused.text


def test_a_dry_run_has_no_effect() -> None:
    world = World()
    assert call(world, "POST", "/v1/tokens?dry_run=true", json=BODY).json()["secret"] is None
    assert world.created_tokens.records == []
    token = created(world)
    assert call(world, "POST", f"/v1/tokens/{token['id']}/rotate?dry_run=true", json={"overlap": "0s"}).json()["secret"] is None
    assert call(world, "DELETE", f"/v1/tokens/{token['id']}?dry_run=true").status_code == 204
    assert len(world.created_tokens.records) == 1
    assert status_with(world, token["secret"]) == 200


@pytest.mark.parametrize("role", ["see", "make", "approve"])
def test_only_an_admin_sees_and_changes_tokens(role: str) -> None:
    for method, path in (
        ("POST", "/v1/tokens"),
        ("GET", "/v1/tokens"),
        ("GET", "/v1/tokens/tok_1"),
        ("DELETE", "/v1/tokens/tok_1"),
        ("POST", "/v1/tokens/tok_1/rotate"),
    ):
        assert code_of(call(World(), method, path, role=role)) == (403, "forbidden")


def test_a_token_of_another_workspace_is_unknown() -> None:
    world = World()
    secret = Secret(b"d" * 32, "", "", 1, None)
    foreign = Credential("other", "tok_2", "x", "admin", (), 1, "", (secret,))
    world.created_tokens.publish(secret_key(foreign, secret), secret_record(foreign, secret, (1, "c")), None)  # type: ignore[arg-type]
    assert call(world, "GET", "/v1/tokens").json()["items"] == []
    assert code_of(call(world, "GET", "/v1/tokens/tok_2")) == (404, "unknown_token")
    assert code_of(call(world, "DELETE", "/v1/tokens/tok_2")) == (404, "unknown_token")
    assert code_of(call(world, "POST", "/v1/tokens/tok_2/rotate")) == (404, "unknown_token")


@pytest.mark.parametrize(
    ("body", "places"),
    [
        ([], {("", "wrong_type")}),
        ({}, {("", "missing_field")}),
        ({"name": "", "role": "owner"}, {("/name", "wrong_type"), ("/role", "wrong_type")}),
        ({"name": "x" * 201, "role": 1}, {("/name", "wrong_type"), ("/role", "wrong_type")}),
        (BODY | {"expires_at": "soon"}, {("/expires_at", "wrong_type")}),
        (BODY | {"expires_at": "1970-01-01T00:00:00Z"}, {("/expires_at", "out_of_range")}),
        (BODY | {"scopes": []}, {("", "unknown_field")}),
    ],
)
def test_invalid_tokens_are_refused_with_every_error(body: object, places: set[tuple[str, str]]) -> None:
    refused = call(World(), "POST", "/v1/tokens", json=body)
    assert refused.status_code == 422
    assert {(one["pointer"], one["code"]) for one in refused.json()["errors"]} == places


@pytest.mark.parametrize("overlap", ["31d", "-1h", "day", 5, "0h"])
def test_invalid_overlaps_are_refused(overlap: object) -> None:
    world = World()
    token = created(world)
    assert call(world, "POST", f"/v1/tokens/{token['id']}/rotate", json={"overlap": overlap}).status_code == 422


def test_pages_and_the_maximum() -> None:
    world = World()
    for number in range(5):
        world.micros += 1000
        created(world, name=f"t{number}")
    first = call(world, "GET", "/v1/tokens?limit=3").json()
    second = call(world, "GET", f"/v1/tokens?limit=3&cursor={first['next_cursor']}").json()
    assert [one["name"] for one in first["items"] + second["items"]] == ["t0", "t1", "t2", "t3", "t4"]
    assert second["next_cursor"] is None
    for number in range(MAX_CREDENTIALS - 5):
        secret = Secret(number.to_bytes(32, "big"), "", "", 1, None)
        one = Credential("acme", f"tok_{number}", "x", "viewer", (), 1, "", (secret,))
        world.created_tokens.publish(secret_key(one, secret), secret_record(one, secret, (1, "c")), None)  # type: ignore[arg-type]
    assert call(world, "POST", "/v1/tokens", json=BODY).status_code == 503


def test_during_an_outage_known_tokens_work_and_nothing_changes() -> None:
    world = World()
    token = created(world)
    world.broker_is_down = True
    assert status_with(world, token["secret"]) == 200
    assert call(world, "POST", "/v1/tokens", json=BODY).status_code == 503
    assert call(world, "DELETE", f"/v1/tokens/{token['id']}").status_code == 503


def test_before_the_tokens_are_read_an_unknown_one_may_be_sent_again() -> None:
    world = World()
    world.created_tokens.unread = True
    assert code_of(call(world, "GET", "/v1/segments", role="stt_unknown")) == (503, "not_ready")
    assert status_with(world, "see") == 200  # a token of the settings
    assert code_of(call(world, "GET", "/v1/segments", headers={"Authorization": ""})) == (401, "unauthorized")
