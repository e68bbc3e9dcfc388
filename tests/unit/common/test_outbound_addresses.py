"""No message is sent into a private network."""

import asyncio
from dataclasses import replace

import pytest

from starling_common.http.outbound.addresses import checked_url, is_public
from starling_common.http.outbound.sessions import GuardedSession
from starling_delivery.channel import Answer, Impossible
from starling_delivery.channels.webhook import WebhookChannel
from starling_delivery.policy import message_of
from tests.unit.delivery.making import request, targets


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.215.14", True),
        ("2606:2800:21f:cb07:6820:80da:af6b:8b2c", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("0.0.0.0", False),
        ("100.64.0.1", False),
        ("224.0.0.1", False),
        ("::1", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("::ffff:10.0.0.1", False),
        ("::ffff:93.184.215.14", True),
        ("::10.0.0.1", False),
        ("::ffff:0:10.0.0.1", False),
        ("::ffff:0:93.184.215.14", False),
        ("::", False),
        ("1::1", False),
        ("4000::1", False),
        ("8000::1", False),
        ("2a00:1450:4001:82a::200e", True),
        ("64:ff9b::a00:1", False),
        ("64:ff9b:1::a00:1", False),
        ("2001:0:4136:e378:8000:63bf:3fff:fdd2", False),
        ("2002:a00:1::1", False),
        ("2002:5db8:d70e::1", False),
        ("192.88.99.1", False),
        ("198.18.0.1", False),
        ("192.0.0.8", False),
        ("255.255.255.255", False),
        ("3fff::1", False),
        ("5f00::1", False),
        ("fec0::1", False),
        ("ff02::1", False),
    ],
)
def test_only_addresses_that_anybody_may_have_are_public(address: str, public: bool) -> None:
    assert is_public(address) is public


def webhook(*, allow_private: bool) -> WebhookChannel:
    session = GuardedSession(lookup_seconds=5, connections=8, allow_private=allow_private)
    return WebhookChannel(session, targets(), allow_private=allow_private)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://127.0.0.1/hook", "private network"),
        ("https://localhost/hook", "private network"),
        ("https://[::1]/hook", "private network"),
        ("https://2130706433/hook", "not a canonical IPv4 address"),
        ("http://93.184.215.14/hook", "https"),
        ("https://93.184.215.14:22/hook", "port 22"),
        ("https://93.184.215.14:25/hook", "port 25"),
        ("https://[64:ff9b::7f00:1]/hook", "private network"),
        ("ftp://93.184.215.14/hook", "http or https"),
        ("https:///hook", "http or https"),
        ("https://a..b/hook", "'a..b' is no host name"),
        ("https://" + "x" * 64 + ".example/hook", "no host name: Label too long"),
        ("https://☃.example/hook", "no host name"),
        ("https://[::1", "no URL"),
        ("https://93.184.215.14:99999/hook", "Port out of range"),
        ("https://93.184.215.14:0/hook", "port must be"),
        ("https://93.184.215.14/\x00", "control character"),
    ],
)
def test_anything_else_is_refused(url: str, why: str) -> None:
    channel = webhook(allow_private=False)

    async def send() -> Answer:
        try:
            return await channel.send(replace(message_of(request()), address=url))
        finally:
            await channel.close()

    answer = asyncio.run(send())
    assert isinstance(answer, Impossible)
    assert why in answer.why


def test_the_url_is_requested_without_credentials() -> None:
    assert (
        checked_url("https://user:secret@93.184.215.14:8443/a/b?c=d", allow_private=False) == "https://93.184.215.14:8443/a/b?c=d"
    )
    assert checked_url("http://127.0.0.1:9", allow_private=True) == "http://127.0.0.1:9/"


def test_a_name_in_other_letters_is_requested_in_ascii() -> None:
    assert checked_url("https://straße.example:8443/x", allow_private=False) == "https://xn--strae-oqa.example:8443/x"
