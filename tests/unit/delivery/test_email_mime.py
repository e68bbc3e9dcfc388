"""A mail has the same headers and texts as one of the standard library's `EmailMessage`, in lines that every server takes."""

import email
import email.policy
from email.headerregistry import Address
from email.message import EmailMessage
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from starling_delivery.channels.email.mime import content, recipient_header, sender_header, subject_header
from starling_delivery.channels.email.signing import Header

POLICY = email.policy.SMTP.clone(cte_type="7bit")
TEXTS = st.one_of(
    st.none(),
    st.text(st.characters(codec="utf-8")),
    st.lists(st.sampled_from(["", ".", "From me", "a" * 100, " ", "x\t", "Zoë", "日本語" * 30, "=?utf-8?q?x?=", "--=_d1"])).map(
        "\n".join
    ),
)


def parsed(headers: list[Header], body: bytes) -> Any:
    lines = b"".join(name + b":" + value + b"\r\n" for name, value in headers)
    return email.message_from_bytes(lines + b"\r\n" + body, policy=email.policy.default)


def of_library(text: str | None, html: str | None) -> Any:
    mail = EmailMessage(POLICY)
    if text is not None:
        mail.set_content(text)
    if html is not None and text is not None:
        mail.add_alternative(html, subtype="html")
    elif html is not None:
        mail.set_content(html, subtype="html")
    return email.message_from_bytes(mail.as_bytes(), policy=email.policy.default)


def contents(mail: Any) -> list[tuple[str, str]]:
    parts = mail.iter_parts() if mail.is_multipart() else [mail]
    return [(part.get_content_type(), part.get_content()) for part in parts]


@given(TEXTS, TEXTS)
@example("a\r\nb\rc\n", None)
@example("\x00\x0b\x0c\x1f\x7f", "<p>\x85\u2028</p>")
def test_the_texts_are_those_of_the_library(text: str | None, html: str | None) -> None:
    headers, body = content(text, html, "=_d1-unlike-any-text")
    found = parsed(headers, body)
    assert not [defect for part in found.walk() for defect in part.defects]
    if text is None and html is None:
        assert (headers, body) == ([], b"")
        return
    assert contents(found) == contents(of_library(text, html))
    assert body.isascii()
    assert body.count(b"\n") == body.count(b"\r") == body.count(b"\r\n")
    assert all(len(line) <= 78 for line in body.split(b"\r\n"))


SUBJECTS = st.one_of(st.text(st.characters(codec="utf-8")), st.text("ab =?é", max_size=90))


@given(SUBJECTS)
@example(" a")
@example("a  b ")
@example("=?utf-8?q?=C3=A9?=")
@example("a\r\nBcc: eve@example.net")
@example("x" * 200)
def test_a_subject_is_that_of_the_library_or_refused_as_there(subject: str) -> None:
    expected = EmailMessage(POLICY)
    try:
        expected["Subject"] = subject
        whole = expected.as_bytes().partition(b"\r\n\r\n")[0]
    except ValueError:
        with pytest.raises(ValueError):  # noqa: PT011 - the text is the library's
            subject_header(subject)
        return
    name, value = subject_header(subject)
    assert name + b":" + value == whole


@pytest.mark.parametrize(
    "address", ["ada@example.com", "a.b+c@mail.example.co.jp", "a" * 64 + "@" + "b" * 60 + ".example.com", "ada@localhost"]
)
def test_addresses_are_those_of_the_library(address: str) -> None:
    expected = EmailMessage(POLICY)
    expected["From"] = Address("Zoë Ω, Shop", addr_spec=address)
    expected["To"] = Address(addr_spec=address)
    whole = expected.as_bytes().partition(b"\r\n\r\n")[0]
    headers = sender_header("Zoë Ω, Shop", address), recipient_header(address)
    assert b"\r\n".join(name + b":" + value for name, value in headers) == whole


@pytest.mark.parametrize("address", ["a..b@example.com", ".a@example.com"])
def test_an_address_that_the_library_refuses_is_refused(address: str) -> None:
    with pytest.raises(Exception):  # noqa: B017, PT011 - the types and texts are the library's
        Address(addr_spec=address)
    with pytest.raises(Exception):  # noqa: B017, PT011
        recipient_header(address)
