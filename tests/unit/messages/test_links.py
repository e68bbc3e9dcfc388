"""Tokens in links: the same for the same link, and none that the installation did not write."""

import base64
import re

import msgspec
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from hypothesis import example, given, settings
from hypothesis import strategies as st

from starling_messages.links import Callback, Link, LinkKind, Links

LINK = Link("acme", "ada/ü", "d-1", "email", "smtp", "win-back", "marketing", "https://shop.example.com/?a=b")
KEYS = {"first": b"1" * 32}


def test_a_token_is_deterministic_and_gives_its_link_back() -> None:
    token = Links(KEYS).token(LinkKind.CLICK, LINK)
    assert Links(KEYS).token(LinkKind.CLICK, LINK) == token
    assert Links(KEYS).read(LinkKind.CLICK, token) == LINK
    assert token.isascii()
    assert "ada" not in token
    assert all(character.isalnum() or character in "-_" for character in token)


FOUND = re.compile(r"https?://[^\s<>\"]+")
NOT_OF_THE_LINK = ".,;:!?-_'*~)]}"
"""What mail clients leave out at the end of a link that they find in plain text."""


@settings(max_examples=300, deadline=None)
@given(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=40),
    st.sampled_from(list(LinkKind)),
    st.sampled_from(["", *".,;:!?)]-_'", "...", ").", "\n", " and more"]),
)
@example("u" * 14, LinkKind.UNSUBSCRIBE, ".")
def test_a_link_at_the_end_of_a_sentence_of_plain_text_is_found_whole(user: str, kind: LinkKind, after: str) -> None:
    links, link = Links(KEYS), LINK._replace(user_id=user)
    url = f"https://t.example.com/{kind}/{links.token(kind, link)}"
    found = FOUND.findall(f"Unsubscribe: {url}{after}")[0].rstrip(NOT_OF_THE_LINK)
    assert found == url
    assert links.read(kind, found.rpartition("/")[2]) == link


def test_a_token_that_ended_with_punctuation_is_still_read() -> None:
    links, seen = Links(KEYS), 0
    for number in range(300):
        link = LINK._replace(user_id=f"user-{number}")
        token = links.token(LinkKind.OPEN, link)
        if len(token) % 4 == 1:
            seen += 1
            assert (token[-2] in "-_", links.read(LinkKind.OPEN, token[:-1])) == (True, link)
            assert links.read(LinkKind.OPEN, f"{token[:-1]}1") is None
        assert links.read(LinkKind.OPEN, f"{token}0") is None
    assert seen > 0


def test_links_live_on_while_their_key_is_listed() -> None:
    before, after = Links(KEYS), Links({"second": b"2" * 32, **KEYS})
    old, new = before.token(LinkKind.OPEN, LINK), after.token(LinkKind.OPEN, LINK)
    assert old != new
    assert after.read(LinkKind.OPEN, old) == LINK
    assert before.read(LinkKind.OPEN, new) is None


def test_no_changed_token_is_read() -> None:
    links = Links(KEYS)
    token = links.token(LinkKind.UNSUBSCRIBE, LINK)
    data = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    for position in range(len(data)):
        changed = data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]
        assert links.read(LinkKind.UNSUBSCRIBE, base64.urlsafe_b64encode(changed).rstrip(b"=").decode()) is None
    assert all(links.read(LinkKind.UNSUBSCRIBE, token[:length]) is None for length in range(len(token)))
    assert links.read(LinkKind.UNSUBSCRIBE, token + "AAAA") is None


@pytest.mark.parametrize("token", ["", "=", "AAAA", "ü" * 20, "A" * 9_000, "AA AA", "\ud800"])
def test_what_is_no_token_is_none(token: str) -> None:
    assert Links(KEYS).read(LinkKind.OPEN, token) is None


def test_another_cipher_key_cannot_write_a_token() -> None:
    links = Links(KEYS)
    key_id = base64.urlsafe_b64decode(links.token(LinkKind.OPEN, LINK)[:8])[:4]
    forged = key_id + AESSIV(b"3" * 64).encrypt(msgspec.msgpack.encode(LINK), [b"o"])
    assert links.read(LinkKind.OPEN, base64.urlsafe_b64encode(forged).rstrip(b"=").decode()) is None


def test_the_token_of_a_callback_is_none_of_a_link() -> None:
    links, callback = Links(KEYS), Callback(LINK._replace(url=""), "d" * 64)
    token = links.callback_token(callback)
    assert links.read_callback(token) == callback
    assert [links.read(kind, token) for kind in LinkKind] == [None] * len(LinkKind)
    assert links.read_callback(links.token(LinkKind.OPEN, LINK)) is None
    assert Links({"second": b"2" * 32}).read_callback(token) is None


def test_a_proof_is_of_the_same_bytes_alone() -> None:
    links = Links(KEYS)
    proof = links.proof(b"body")
    assert Links({"second": b"2" * 32, **KEYS}).proves(proof, b"body")
    assert not links.proves(proof, b"bodY")
    assert not Links({"second": b"2" * 32}).proves(proof, b"body")
    assert not links.proves(links.token(LinkKind.OPEN, LINK), b"body")
