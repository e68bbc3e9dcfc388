"""The mail of a message, and its signature, which an independent library verifies."""

import email
import email.policy
import json
import re
from datetime import UTC, datetime
from typing import Any

import dkim
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from starling_delivery.channels.email.callbacks import provider_headers
from starling_delivery.channels.email.rendering import Mail, MailRefused, OtherPage, mail_of
from starling_delivery.channels.email.signing import Header, KeyRefused, Signer, relaxed_body
from starling_messages.links import Callback, Links
from starling_policy import address_digest
from tests.unit.delivery.messages import key_pair, message

AT = datetime(2026, 12, 1, 9, tzinfo=UTC)
LINK = OtherPage("https://mail.example.com/u")


def mail(sender: str = "Shop <shop@example.com>", signer: Signer | None = None, **more: Any) -> Mail:
    return mail_of(message(**more), sender, LINK, AT, signer)


def split_mail(data: bytes) -> tuple[list[Header], bytes]:
    """The headers, each with its folded value, and the body."""
    head, _, body = data.partition(b"\r\n\r\n")
    headers = [line.partition(b":") for line in re.split(rb"\r\n(?![ \t])", head)]
    return [(name, value) for name, _, value in headers], body


def parsed(made: Mail) -> Any:
    return email.message_from_bytes(made.data, policy=email.policy.default)


def test_a_mail_has_both_parts_and_a_message_id_of_its_delivery() -> None:
    made = mail()
    found = parsed(made)
    assert (made.sender, made.recipient) == ("shop@example.com", "ada@example.net")
    assert (found["From"], found["To"], found["Subject"]) == ("Shop <shop@example.com>", "ada@example.net", "Hello")
    assert found["Message-ID"] == "<d1@example.com>"
    assert found.get_content_type() == "multipart/alternative"
    assert [part.get_content_type() for part in found.iter_parts()] == ["text/plain", "text/html"]
    assert found.get_body(("html",)).get_content().strip() == "<p>Hi</p>"
    assert made.data.replace(b"\r\n", b"").count(b"\n") == 0


def test_the_same_message_has_the_same_bytes() -> None:
    assert mail() == mail()


def test_a_message_with_one_part_is_not_multipart() -> None:
    found = parsed(mail(content={"subject": "Hello", "html": "<p>Hi</p>"}))
    assert found.get_content_type() == "text/html"


def test_any_text_is_sent_in_seven_bits_and_short_lines() -> None:
    text = "Grüße, 世界 " + "x" * 5_000
    made = mail(content={"subject": "Grüße " * 30, "text": text, "html": f"<p>{text}</p>"})
    assert max(len(line) for line in made.data.split(b"\r\n")) <= 998
    assert max(made.data) < 128
    assert parsed(made)["Subject"].strip() == ("Grüße " * 30).strip()
    assert parsed(made).get_body(("plain",)).get_content().strip() == text


def test_every_purpose_but_transactional_can_be_unsubscribed_with_one_click() -> None:
    found = parsed(mail(purpose="news & more"))
    assert found["List-Unsubscribe"] == f"<{LINK.base_url}?workspace=default&delivery=d1&purpose=news+%26+more>"
    assert found["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
    assert parsed(mail(purpose="transactional"))["List-Unsubscribe"] is None
    with pytest.raises(MailRefused):
        mail_of(message(), "shop@example.com", None, AT, None)


@pytest.mark.parametrize(
    "address",
    [
        "", "ada", "ada@", "@example.net", "ada@example.net\r\nBcc: eve@example.net", "ada@example.net\n", "ada@exa mple.net",
        "ada@example.net, eve@example.net", "Ada <ada@example.net>", "ada@b@example.net", '"a b"@example.net', "ädä@example.net",
        "ada@example.net>", "\ud800@example.net", "ada@" + "x" * 300, "ada@..", "a" * 65 + "@example.net",
    ],
)  # fmt: skip
def test_an_address_that_a_command_or_a_header_cannot_contain_is_refused(address: str) -> None:
    if address == "ada@example.net\n":  # white space around an address is no injection
        assert mail(address=address).recipient == "ada@example.net"
        return
    with pytest.raises(MailRefused):
        mail(address=address)


@pytest.mark.parametrize("subject", ["Hello\r\nBcc: eve@example.net", "Hello\nBcc: eve@example.net", "Hello\rBcc: eve@example.net"])
def test_a_subject_cannot_add_a_header(subject: str) -> None:
    with pytest.raises(MailRefused):
        mail(content={"subject": subject, "text": "Hi"})


def test_a_domain_beyond_ascii_is_sent_in_its_ascii_form() -> None:
    assert mail(address="ada@bücher.example").recipient == "ada@xn--bcher-kva.example"


def verified(made: Mail, record: bytes) -> bool:
    asked = []

    def dns(name: bytes, timeout: int = 5) -> bytes:
        asked.append(name)
        return record

    result: bool = dkim.verify(made.data, dnsfunc=dns)
    assert set(asked) <= {b"s1._domainkey.example.com."}
    return result


def test_a_signature_with_rsa_covers_every_header_and_the_body() -> None:
    key, record = key_pair()
    made = mail(signer=Signer.of("example.com", "s1", key))
    assert verified(made, record)
    headers, _ = split_mail(made.data)
    signed = dict(headers)[b"DKIM-Signature"].replace(b"\r\n", b"").replace(b" ", b"")
    covered = next(tag for tag in signed.split(b";") if tag.startswith(b"h="))[2:].split(b":")
    assert {name.lower() for name, _ in headers[1:]} <= set(covered)
    for header in (b"Subject", b"To", b"List-Unsubscribe", b"Message-ID", b"Date", b"Content-Type"):
        assert not verified(Mail("", "", made.data.replace(header + b": ", header + b": x", 1)), record)
    assert not verified(Mail("", "", made.data.replace(b"Hi", b"Ho", 1)), record)
    assert not verified(Mail("", "", b"Subject: second\r\n" + made.data), record)


@pytest.mark.parametrize(
    "content",
    [
        {"subject": "s", "text": ""},
        {"subject": "s  t", "text": "\n\n\n"},
        {"subject": "s", "text": "trailing   \n\n  x\ty  \n.\n..\n\n\n"},
        {"subject": "ü" * 200, "text": "ü\n" * 300, "html": "<p>" + "x " * 4_000},
    ],
)
def test_any_content_is_signed_as_it_is_verified(content: dict[str, str]) -> None:
    key, record = key_pair()
    assert verified(mail(content=content, signer=Signer.of("example.com", "s1", key)), record)


def test_an_empty_body_is_empty_in_relaxed_form() -> None:
    assert relaxed_body(b"\r\n\r\n") == b""
    assert relaxed_body(b"a \t b \r\n\r\n") == b"a b\r\n"


def test_an_ed25519_key_signs_too_and_others_are_refused() -> None:
    pem = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    assert b"a=ed25519-sha256" in mail(signer=Signer.of("example.com", "s1", pem.decode())).data
    for bad in ("", "-----BEGIN PRIVATE KEY-----\nQUJD\n-----END PRIVATE KEY-----\n"):
        with pytest.raises(KeyRefused):
            Signer.of("example.com", "s1", bad)


SES = {"provider": "ses", "topic_arn": "arn:aws:sns:eu-central-1:123456789012:mails", "configuration_set": "shop"}
LINKS = Links({"first": b"1" * 32})


def called_back(callbacks: dict[str, str], signer: Signer | None = None, **more: Any) -> Mail:
    headers = provider_headers(message(**more), callbacks, LINKS)
    return mail_of(message(**more), "shop@example.com", LINK, AT, signer, headers)


def token_of(text: str) -> Callback | None:
    return LINKS.read_callback("".join(text.split()))


def test_a_mail_names_its_message_to_the_provider() -> None:
    found = parsed(called_back(SES))
    callback = token_of(found["X-Starling-Delivery"])
    assert callback is not None
    assert (callback.link.delivery_id, callback.link.target_key) == ("d1", "main-smtp")
    assert callback.digest == address_digest("ada@example.net")
    assert found["X-SES-CONFIGURATION-SET"] == "shop"
    assert found["X-SMTPAPI"] is None
    assert parsed(mail())["X-Starling-Delivery"] is None


@pytest.mark.parametrize("user_id", ["ada", "ü" * 256])
def test_sendgrid_repeats_the_token_however_long_it_is(user_id: str) -> None:
    found = parsed(called_back({"provider": "sendgrid", "public_key": "k"}, user_id=user_id))
    arguments = json.loads(found["X-SMTPAPI"])["unique_args"]
    callback = token_of(arguments["starling"])
    assert callback is not None
    assert callback.link.user_id == user_id
    assert token_of(found["X-Starling-Delivery"]) == callback


def test_the_mail_of_a_test_names_no_message() -> None:
    found = parsed(called_back({"provider": "dsn", "secret": "s"}, is_test=True))
    assert found["X-Starling-Delivery"] == "test"


def test_no_keys_no_token() -> None:
    headers = provider_headers(message(), SES, None)
    assert [name for name, _ in headers.headers] == [b"X-SES-CONFIGURATION-SET"]


@pytest.mark.parametrize(
    ("callbacks", "replaced"),
    [
        (SES, ("Message-ID", "Date", "X-SES-CONFIGURATION-SET")),
        ({"provider": "sendgrid", "public_key": "k"}, ("X-SMTPAPI",)),
        ({"provider": "dsn", "secret": "s"}, ()),
    ],
)
def test_a_signature_survives_the_headers_that_a_provider_replaces(callbacks: dict[str, str], replaced: tuple[str, ...]) -> None:
    pem, record = key_pair()
    made = called_back(callbacks, Signer.of("example.com", "s1", pem))
    sent = email.message_from_bytes(made.data)
    headers, body = split_mail(made.data)
    kept = [(name, value) for name, value in headers if name.decode().lower() not in {one.lower() for one in replaced}]
    data = b"".join(name + b":" + value + b"\r\n" for name, value in kept) + b"Message-ID: <own@provider>\r\n" * bool(
        "Message-ID" in replaced
    )
    assert all(sent[name] is not None for name in replaced)
    assert dkim.verify(data + b"\r\n" + body, dnsfunc=lambda _name, **_more: record)
