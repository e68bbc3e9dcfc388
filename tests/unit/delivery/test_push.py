"""The pure parts of the push channel: encryption, keys and payloads."""

import base64
import json
from typing import Any

import http_ece
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from starling_campaigns import Target
from starling_delivery.channels.push.encryption import SubscriptionRefused, encrypted
from starling_delivery.channels.push.keys import (
    KeyRefused,
    PerTarget,
    ProviderToken,
    ServiceAccount,
    VapidKey,
    base64url,
    from_base64url,
)
from starling_delivery.channels.push.payloads import (
    MOST_MOBILE_BYTES,
    MOST_WEB_BYTES,
    PayloadRefused,
    apns_payload,
    fcm_payload,
    remaining_seconds,
    web_payload,
)
from starling_delivery.messages.definitions import KnownTarget
from starling_messages.devices import Subscription
from tests.unit.delivery.messages import message

NOW = 1_800_000_000
EC_KEY = ec.generate_private_key(ec.SECP256R1())
RSA_KEY = rsa.generate_private_key(65_537, 2_048)
OTHER_CURVE = ec.generate_private_key(ec.SECP384R1())


def pem(key: Any) -> str:
    found: bytes = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return found.decode()


def der(key: Any) -> str:
    return base64url(key.private_bytes(serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))


def raw(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_numbers().private_value.to_bytes(32)


def public(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)


def test_the_example_of_the_specification_is_encrypted_to_its_bytes() -> None:
    """RFC 8291, section 5."""
    subscription = Subscription(
        "https://push.example.net/push/JzLQ3raZJfFBR0aqvOMsLrt54w4rJUsV",
        "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
        "BTBZMqHH6r4Tts7J_aSIgg",
    )
    own = ec.derive_private_key(int.from_bytes(from_base64url("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw")), ec.SECP256R1())
    salt = from_base64url("DGv6ra1nlYgDCS1FRnbzlw")
    body = encrypted(b"When I grow up, I want to be a watermelon", subscription, own, salt)
    assert base64url(body) == (
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6"
        "cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
    )


@pytest.mark.parametrize("size", [0, 1, 100, MOST_WEB_BYTES])
def test_no_two_messages_are_encrypted_alike_and_another_implementation_decrypts_it(size: int) -> None:
    secret, payload = bytes(range(16)), b"x" * size
    subscription = Subscription("https://push.example/a", base64url(public(EC_KEY)), base64.urlsafe_b64encode(secret).decode())
    first, second = encrypted(payload, subscription), encrypted(payload, subscription)
    assert first[:16] != second[:16]
    assert first[21:86] != second[21:86]
    for body in (first, second):
        assert len(body) <= 4_096
        assert http_ece.decrypt(body, private_key=EC_KEY, auth_secret=secret, version="aes128gcm") == payload


@pytest.mark.parametrize(
    ("p256dh", "auth"),
    [
        (base64url(public(EC_KEY)), "AAAA"),
        (base64url(public(EC_KEY)), "A"),
        ("AAAA", base64url(bytes(16))),
        (base64url(b"\x04" + bytes(64)), base64url(bytes(16))),
        (base64url(public(OTHER_CURVE)), base64url(bytes(16))),
    ],
    ids=["a short secret", "no base64", "a short key", "no point", "another curve"],
)
def test_keys_that_are_none_are_refused(p256dh: str, auth: str) -> None:
    with pytest.raises(SubscriptionRefused, match="the keys of the subscription are invalid"):
        encrypted(b"x", Subscription("https://push.example/a", p256dh, auth))


@pytest.mark.parametrize(
    "key",
    [base64url(raw(EC_KEY)), base64.urlsafe_b64encode(raw(EC_KEY)).decode(), der(EC_KEY)],
    ids=["32 bytes", "with padding", "PKCS 8"],
)
def test_a_vapid_key_has_32_bytes_or_is_pkcs_8(key: str) -> None:
    found = VapidKey({"subject": "mailto:push@shop.example", "private_key": key})
    assert found.public == base64url(public(EC_KEY))
    header = found.header("https://push.example", NOW)
    fields = dict(one.split("=", 1) for one in header.removeprefix("vapid ").split(","))
    options: Any = {"verify_exp": False}
    claims = jwt.decode(fields["t"], EC_KEY.public_key(), ["ES256"], audience="https://push.example", options=options)
    assert claims == {"aud": "https://push.example", "exp": NOW + 12 * 3_600, "sub": "mailto:push@shop.example"}
    assert fields["k"] == found.public


def test_a_vapid_token_is_signed_once_for_each_service_and_again_before_it_ends() -> None:
    key = VapidKey({"subject": "mailto:push@shop.example", "private_key": base64url(raw(EC_KEY))})
    first = key.header("https://push.example", NOW)
    assert key.header("https://push.example", NOW + 6 * 3_600 - 1) == first
    assert key.header("https://push.example", NOW + 6 * 3_600) != first
    others = {key.header(f"https://push{n}.example", NOW) for n in range(300)}
    assert len(others) == 300
    assert len(key._headers) <= 256


@pytest.mark.parametrize("key", ["", "AAAA", "!", base64url(bytes(32)), base64url(b"\xff" * 32), der(OTHER_CURVE), der(RSA_KEY)])
def test_what_is_no_vapid_key_is_refused(key: str) -> None:
    with pytest.raises(KeyRefused, match="the private_key of the target"):
        VapidKey({"subject": "mailto:push@shop.example", "private_key": key})


def provider(key: str) -> ProviderToken:
    return ProviderToken({"team_id": "TEAM", "key_id": "KEY", "private_key": key})


def test_a_provider_token_names_team_and_key_and_lasts_40_minutes() -> None:
    token = provider(pem(EC_KEY))
    first = token.value(NOW)
    assert jwt.decode(first, EC_KEY.public_key(), ["ES256"], options={"verify_iat": False}) == {"iss": "TEAM", "iat": NOW}
    assert jwt.get_unverified_header(first) == {"alg": "ES256", "kid": "KEY", "typ": "JWT"}
    assert token.value(NOW + 2_399) == first
    assert token.value(NOW + 2_400) != first


def test_a_provider_token_is_replaced_once_and_not_within_20_minutes() -> None:
    token = provider(pem(EC_KEY))
    first = token.value(NOW)
    assert token.replaced(first, NOW + 1_199) is None
    second = token.replaced(first, NOW + 1_200)
    assert second not in {None, first}
    assert token.replaced(first, NOW + 1_201) == second
    assert token.value(NOW + 1_201) == second


@pytest.mark.parametrize(
    "key", [pem(RSA_KEY), pem(OTHER_CURVE), pem(ed25519.Ed25519PrivateKey.generate()), "", "-----BEGIN X-----"]
)
def test_what_is_no_key_of_apns_is_refused(key: str) -> None:
    with pytest.raises(KeyRefused, match="the private_key of the target"):
        provider(key)


def account(key: str) -> ServiceAccount:
    return ServiceAccount({"project_id": "shop-1", "client_email": "sender@shop-1.example", "private_key": key})


def test_a_service_account_signs_what_google_exchanges() -> None:
    assertion = account(pem(RSA_KEY)).assertion("https://oauth2.example/token", NOW)
    options: Any = {"verify_exp": False, "verify_iat": False}
    claims = jwt.decode(assertion, RSA_KEY.public_key(), ["RS256"], audience="https://oauth2.example/token", options=options)
    assert claims == {
        "iss": "sender@shop-1.example", "scope": "https://www.googleapis.com/auth/firebase.messaging",
        "aud": "https://oauth2.example/token", "iat": NOW, "exp": NOW + 3_600,
    }  # fmt: skip


@pytest.mark.parametrize("key", [pem(EC_KEY), "", "-----BEGIN X-----"])
def test_what_is_no_key_of_a_service_account_is_refused(key: str) -> None:
    with pytest.raises(KeyRefused, match="the private_key of the target"):
        account(key)


def test_a_key_is_read_once_for_each_version_of_a_target() -> None:
    read: list[str] = []

    def make(settings: Any) -> str:
        read.append(settings["v"])
        return str(settings["v"])

    keys = PerTarget(make)
    versions = [KnownTarget("default", "main", n, Target("main", "main", "apns", {"v": f"v{n}"})) for n in (1, 2)]
    other = KnownTarget("other", "main", 1, Target("main", "main", "apns", {"v": "other"}))
    assert [keys.of(one) for one in (versions[0], versions[0], other, versions[1], versions[1])] == [
        "v1",
        "v1",
        "other",
        "v2",
        "v2",
    ]
    assert read == ["v1", "other", "v2"]


@pytest.mark.parametrize("text", ["A", "AB CD", "AB+/", "é", "AB=CD"])
def test_other_alphabets_are_no_base64url(text: str) -> None:
    with pytest.raises(ValueError, match="no base64url"):
        from_base64url(text)


CONTENT = {"title": "News", "body": "Hello"}


def test_a_notification_without_url_has_none() -> None:
    sent = message(content=CONTENT)
    assert json.loads(web_payload(sent)) == {"title": "News", "body": "Hello", "delivery_id": "d1"}
    assert json.loads(fcm_payload(sent, 0))["message"]["data"] == {"delivery_id": "d1"}
    assert json.loads(apns_payload(sent)) == {"aps": {"alert": CONTENT}, "delivery_id": "d1"}


@pytest.mark.parametrize(("most", "encode"), [(MOST_WEB_BYTES, web_payload), (MOST_MOBILE_BYTES, apns_payload)])
def test_the_bound_of_a_payload_counts_the_bytes_of_its_json(most: int, encode: Any) -> None:
    overhead = len(encode(message(content={"title": "", "body": ""})))
    assert len(encode(message(content={"title": "é", "body": "x" * (most - overhead - 2)}))) == most
    with pytest.raises(PayloadRefused, match=f"at most {most}"):
        encode(message(content={"title": "é", "body": "x" * (most - overhead - 1)}))


def test_the_bound_of_fcm_is_that_of_the_notification_and_its_data() -> None:
    fcm_payload(message(content={"title": "", "body": "x" * 4_000}), 0)
    with pytest.raises(PayloadRefused):
        fcm_payload(message(content={"title": "", "body": "x" * 4_060}), 0)


@pytest.mark.parametrize(("expires_at", "seconds"), [(None, 86_400), (10_999, 9), (1_000, 0), (0, 0)])
def test_a_service_keeps_a_message_until_it_expires(expires_at: int | None, seconds: int) -> None:
    assert remaining_seconds(message(expires_at=expires_at), 1_500) == seconds
