"""Secrets of webhooks and targets: encrypted wherever they are stored, and in no response but one."""

import json
from dataclasses import replace
from typing import Any

import pytest

from starling_api.definitions.commands.changes import ABANDONED_MICROS
from starling_api.definitions.kinds.kind import Kind
from starling_api.definitions.kinds.kinds import SEGMENTS, TARGETS, WEBHOOKS
from starling_api.definitions.vault import Vault
from starling_api.http.errors import SecretUnreadable
from starling_common.kafka.clients import BrokerUnavailable
from starling_common.security.sealing import Sealer
from starling_common.time.instants import format_instant
from tests.unit.api.calls import call
from tests.unit.api.memory import AUTHOR, World

FIRST, SECOND = b"1" * 32, b"2" * 32
OWN = "whsec_" + "UExBTlRFRC1TRUNSRVQtT0YtQS1XRUJIT09L"
HOOK = {"key": "shop", "url": "https://shop.example/hook", "secret": OWN, "headers": {"Authorization": "Bearer planted-header"}}
KEY = "-----BEGIN PRIVATE KEY-----\nplantedkey\n-----END PRIVATE KEY-----"
MAIL = {
    "key": "mail",
    "channel": "email",
    "host": "smtp.example.com",
    "port": 587,
    "tls": "starttls",
    "from": "shop@example.com",
    "username": "shop",
    "password": "planted-password",
    "dkim": {"domain": "example.com", "selector": "s1", "private_key": KEY},
}
SLACK = {"key": "chat", "channel": "slack", "url": "https://hooks.example.com/planted-path", "segments": ["vip"]}
VIP = {"key": "vip", "name": "VIP", "where": {"everyone": True}}
PLANTED = (OWN, "planted-header", "planted-password", "plantedkey", "planted-path")


def with_keys(world: World, **keys: bytes) -> World:
    """The same stores, with other keys."""
    world.vault = Vault(Sealer(keys))
    return world


def filled() -> World:
    world = World()
    world.commands.define(SEGMENTS, AUTHOR, VIP)
    for path, body in (("webhooks", HOOK), ("targets", MAIL), ("targets", SLACK)):
        assert call(world, "POST", f"/v1/{path}", json=body, headers={"Idempotency-Key": body["key"]}).status_code == 201
    return world


def stored(world: World) -> str:
    return repr((world.published, world.claims.newest_claims, world.reader.shown, world.answers.kept, world.audited))


def as_before_encryption(world: World) -> World:
    """The stores as an earlier version has left them: with plain secrets."""
    for (workspace, kind, key), shown in world.reader.shown.items():
        if kind == SEGMENTS.name:
            continue
        document = world.vault.opened({"webhook": WEBHOOKS, "target": TARGETS}[kind], workspace, shown.document)
        world.reader.shown[workspace, kind, key] = replace(shown, document=document)
        claim = world.claims.newest_claims[workspace, kind, key]
        world.claims.newest_claims[workspace, kind, key] = replace(claim, change=replace(claim.change, document=document))
    world.published.clear()
    return world


def test_a_planted_secret_is_nowhere_but_in_the_response_that_creates_it() -> None:
    world = filled()
    again = call(world, "POST", "/v1/webhooks", json=HOOK, headers={"Idempotency-Key": "shop"})
    assert (again.status_code, again.json()["secret"]) == (201, OWN)
    turned = call(world, "POST", "/v1/webhooks/shop/rotate-secret", headers={"Idempotency-Key": "turn"}).json()["secret"]
    assert call(world, "POST", "/v1/webhooks/shop/rotate-secret", headers={"Idempotency-Key": "turn"}).json()["secret"] == turned
    assert turned not in {None, OWN}
    texts = [
        call(world, "PUT", f"/v1/{path}", json=call(world, "GET", f"/v1/{path}").json() | {"tags": ["a"]}).text
        for path in ("webhooks/shop", "targets/mail", "targets/chat")
    ]
    texts += [call(world, "GET", path).text for path in ("/v1/webhooks", "/v1/targets")]
    for path, body in (
        ("webhooks", {**HOOK, "key": "b", "secret": f"{OWN}-broken"}),
        ("webhooks", {**HOOK, "key": "b", "headers": {"X-A": "planted-header\n"}, "batch": {"max_items": OWN}}),
        ("targets", {**MAIL, "key": "b", "password": "planted-password\n", "dkim": {"private_key": KEY[:-1]}}),
        ("targets", {**SLACK, "key": "b", "url": "planted-path"}),
    ):
        refused = call(world, "POST", f"/v1/{path}", json=body)
        assert refused.status_code == 422
        texts.append(refused.text)
    for planted in (*PLANTED, turned):
        assert planted not in stored(world)
        assert planted not in "".join(texts)
    assert world.plain(TARGETS, world.reader.shown["acme", "target", "mail"])["dkim"]["private_key"] == KEY


def test_a_lost_response_is_repeated_with_the_same_secrets() -> None:
    world = World(broker_is_down=True)
    with pytest.raises(BrokerUnavailable):
        world.commands.define(WEBHOOKS, AUTHOR, HOOK)
    world.broker_is_down = False
    world.micros += ABANDONED_MICROS + 1
    assert world.plain(WEBHOOKS, world.commands.define(WEBHOOKS, AUTHOR, HOOK))["secret"] == OWN
    assert len(world.published) == 1


@pytest.mark.parametrize(("path", "body"), [("webhooks", HOOK), ("targets", MAIL), ("targets", SLACK)])
def test_without_a_key_no_secret_is_stored(path: str, body: dict[str, Any]) -> None:
    world = with_keys(World())
    world.commands.define(SEGMENTS, AUTHOR, VIP)
    for query in ("", "?dry_run=true"):
        refused = call(world, "POST", f"/v1/{path}{query}", json=body)
        assert (refused.status_code, refused.json()["code"]) == (503, "secrets_key_missing")
        assert "STARLING_SECRETS__KEYS" in refused.json()["message"]
    assert {kind for _, kind, _ in world.claims.newest_claims} == {SEGMENTS.name}
    without = {name: value for name, value in MAIL.items() if name not in {"password", "dkim"}}
    assert call(world, "POST", "/v1/targets", json=without).status_code == 201
    assert call(world, "POST", "/v1/secrets/rotate").json()["code"] == "secrets_key_missing"


def test_the_same_secret_is_no_change() -> None:
    world = filled()
    for kind, path, body in ((WEBHOOKS, "webhooks/shop", HOOK), (TARGETS, "targets/mail", MAIL)):
        before = world.reader.shown["acme", kind.name, str(body["key"])]
        answer = call(world, "PUT", f"/v1/{path}", json=body)
        assert (answer.status_code, answer.json()["revision"]) == (200, before.revision)
    other = call(world, "PUT", "/v1/webhooks/shop", json={**HOOK, "headers": {"Authorization": "Bearer other"}})
    assert (other.json()["version"], other.json()["previous_secret_expires_at"]) == (2, None)


def test_plain_secrets_of_an_earlier_version_are_read_and_encrypted_at_the_next_write() -> None:
    world = as_before_encryption(filled())
    assert OWN in stored(world)
    assert world.plain(WEBHOOKS, world.reader.shown["acme", "webhook", "shop"])["secret"] == OWN
    named = call(world, "PUT", "/v1/webhooks/shop", json={**call(world, "GET", "/v1/webhooks/shop").json(), "tags": ["a"]})
    assert (named.status_code, named.json()["version"], named.json()["previous_secret_expires_at"]) == (200, 1, None)
    assert call(world, "PUT", "/v1/targets/mail", json={**MAIL, "host": "other.example.com"}).json()["version"] == 2
    assert call(world, "DELETE", "/v1/targets/chat").status_code == 204
    for planted in PLANTED:
        assert planted not in repr((world.published, world.claims.newest_claims, world.reader.shown))


def rotated(world: World, query: str = "") -> dict[str, Any]:
    answer = call(world, "POST", f"/v1/secrets/rotate{query}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.parametrize("plain", [False, True])
def test_a_rotation_encrypts_everything_with_the_newest_key(plain: bool) -> None:
    world = filled()
    call(world, "DELETE", "/v1/targets/chat")
    if plain:
        as_before_encryption(world)
    with_keys(world, second=SECOND, first=FIRST)
    everything = [{"kind": "webhook", "key": "shop"}, {"kind": "target", "key": "mail"}]
    count = len(world.published)
    for query in ("?dry_run=true", ""):
        assert rotated(world, query) == {"key_id": "second", "rewritten": everything, "unreadable": [], "complete": True}
        assert len(world.published) == (count if query else count + 2)
    assert rotated(world)["rewritten"] == []
    with_keys(world, second=SECOND)
    for kind, key in ((WEBHOOKS, "shop"), (TARGETS, "mail")):
        shown = world.reader.shown["acme", kind.name, key]
        assert shown.version == 1
        assert shown.document == world.claims.newest_claims["acme", kind.name, key].change.document
        assert ":first:" not in json.dumps(shown.document)
    assert world.plain(WEBHOOKS, world.reader.shown["acme", "webhook", "shop"])["secret"] == OWN
    assert world.plain(TARGETS, world.reader.shown["acme", "target", "mail"])["password"] == "planted-password"


def test_a_rotation_leaves_a_disabled_webhook_disabled_and_drops_an_expired_secret() -> None:
    world = filled()
    call(world, "POST", "/v1/webhooks/shop/rotate-secret")
    shown = world.reader.shown["acme", "webhook", "shop"]
    gone = {**shown.document, "disabled": True, "disabled_because": "410"}
    world.reader.shown["acme", "webhook", "shop"] = replace(
        shown, status="disabled", document=gone, recorded_at_micros=shown.recorded_at_micros + 1
    )
    world.micros += 25 * 3_600_000_000
    rotated(with_keys(world, second=SECOND, first=FIRST))
    shown = world.reader.shown["acme", "webhook", "shop"]
    assert (shown.status, shown.document["disabled"], shown.version) == ("disabled", True, 2)
    assert "previous_secret" not in shown.document


def test_a_long_rotation_ends_in_time_and_goes_on() -> None:
    world = World()
    for number in range(6):
        call(world, "POST", "/v1/webhooks", json={**HOOK, "key": f"w{number}"})
    with_keys(world, second=SECOND, first=FIRST)
    world.projector_is_down = True  # each write waits for the read model until it gives up
    first = rotated(world)
    assert (first["complete"], [one["key"] for one in first["rewritten"]]) == (False, ["w0", "w1", "w2", "w3"])
    world.projector_is_down = False
    for change in world.published:
        world.reader.shown[change.workspace, change.kind, change.key] = change.definition()
    second = rotated(world)
    assert (second["complete"], [one["key"] for one in second["rewritten"]]) == (True, ["w4", "w5"])


def test_a_lost_key_stops_its_own_definition_and_a_new_secret_cures_it() -> None:
    world = filled()
    with_keys(world, second=SECOND)
    call(world, "POST", "/v1/webhooks", json={**HOOK, "key": "other", "url": "https://127.0.0.1/hook"})
    lost = call(world, "POST", "/v1/webhooks/shop/test")
    assert (lost.status_code, lost.json()["code"]) == (503, "secret_unreadable")
    assert "'first'" in lost.json()["message"]
    assert "STARLING_SECRETS__KEYS" in lost.json()["message"]
    assert call(world, "POST", "/v1/webhooks/other/test").json()["reason"] == "address_refused"
    found = rotated(world)
    assert [(one["kind"], one["key"]) for one in found["unreadable"]] == [
        ("webhook", "shop"),
        ("target", "chat"),
        ("target", "mail"),
    ]
    assert all("'first'" in one["reason"] for one in found["unreadable"])
    shown = call(world, "GET", "/v1/webhooks/shop").json()
    assert call(world, "PUT", "/v1/webhooks/shop", json={**shown, "tags": ["a"]}).status_code == 200
    with pytest.raises(SecretUnreadable):
        world.plain(WEBHOOKS, world.reader.shown["acme", "webhook", "shop"])
    shown = call(world, "GET", "/v1/webhooks/shop").json()
    cured = call(world, "PUT", "/v1/webhooks/shop", json={**shown, "secret": OWN, "headers": HOOK["headers"]})
    assert (cured.status_code, cured.json()["version"]) == (200, 2)
    new = world.reader.shown["acme", "webhook", "shop"].document
    assert world.vault.sealer.is_current(new["secret"])
    assert call(world, "POST", "/v1/targets", json={**SLACK, "key": "chat-2"}).status_code == 201


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        ("webhooks", {**HOOK, "key": "b", "secret": "sealed:v1:first:AAAA"}, "/secret"),
        ("webhooks", {**HOOK, "key": "b", "headers": {"X-A": "sealed:v1:first:AAAA"}}, "/headers/X-A"),
        ("targets", {**MAIL, "key": "b", "password": "sealed:v1:first:AAAA"}, "/password"),
        ("targets", {**MAIL, "key": "b", "dkim": {**MAIL["dkim"], "private_key": "sealed:v1:x:"}}, "/dkim/private_key"),  # type: ignore[dict-item]
    ],
)
def test_a_body_has_no_encrypted_secrets(path: str, body: dict[str, Any], pointer: str) -> None:
    refused = call(World(), "POST", f"/v1/{path}", json=body)
    assert refused.status_code == 422
    assert [one["pointer"] for one in refused.json()["errors"]] == [pointer]


@pytest.mark.parametrize(("kind", "key", "field"), [(WEBHOOKS, "shop", "secret"), (TARGETS, "mail", "password")])
def test_a_copied_secret_does_not_open_elsewhere(kind: Kind, key: str, field: str) -> None:
    world = filled()
    shown = world.reader.shown["acme", kind.name, key]
    for workspace, document in (("other", dict(shown.document)), ("acme", {**shown.document, "key": "copy"})):
        with pytest.raises(SecretUnreadable, match="copied from another place"):
            world.vault.opened(kind, workspace, document)
    assert world.vault.opened(kind, "acme", {"key": key, "channel": "email", field: shown.document[field]})[field] in PLANTED


def test_the_previous_secret_keeps_its_place() -> None:
    world = filled()
    call(world, "POST", "/v1/webhooks/shop/rotate-secret")
    shown = world.reader.shown["acme", "webhook", "shop"]
    assert world.plain(WEBHOOKS, shown)["previous_secret"] == OWN
    expires = call(world, "GET", "/v1/webhooks/shop").json()["previous_secret_expires_at"]
    assert expires == format_instant(shown.document["previous_secret_until_ms"])


def test_a_target_of_a_webhook_gets_a_secret_that_one_response_shows() -> None:
    world, hook = World(), {"key": "hook", "channel": "webhook", "url": "https://shop.example/campaigns"}
    made = call(world, "POST", "/v1/targets", json=hook, headers={"Idempotency-Key": "hook"})
    secret = made.json()["secret"]
    assert (made.status_code, secret[:6]) == (201, "whsec_")
    assert call(world, "POST", "/v1/targets", json=hook, headers={"Idempotency-Key": "hook"}).json()["secret"] == secret
    assert secret not in stored(world)
    changed = call(world, "PUT", "/v1/targets/hook", json={**hook, "format": "segment-track"})
    assert (changed.json()["version"], changed.json()["secret"]) == (2, "***")
    assert call(world, "GET", "/v1/targets/hook").json()["secret"] == "***"
    shown = world.reader.shown["acme", "target", "hook"].document
    assert world.vault.opened(TARGETS, "acme", shown)["secret"] == secret


def test_a_secret_of_a_webhook_is_one_of_standard_webhooks() -> None:
    world, hook = World(), {"key": "hook", "channel": "webhook", "url": "https://shop.example/campaigns"}
    for secret in ("planted", "whsec_", "whsec_ab!", "whsec_" + "QUFB" * 22):
        answer = call(world, "POST", "/v1/targets", json={**hook, "secret": secret})
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/secret"), secret
    assert call(world, "POST", "/v1/targets", json={**hook, "secret": OWN}).json()["secret"] == OWN
    assert call(world, "POST", "/v1/targets", json=MAIL).json().keys().isdisjoint({"secret"})
    answer = call(world, "PUT", "/v1/targets/mail", json={**hook, "key": "mail"})
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, "missing_field")
