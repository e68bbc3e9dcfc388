"""What the demo expects of the campaign is checked by hand, and a planted fault must be found."""

import smtplib

import pytest

from starling_common.time.instants import parse_instant
from starling_demo.dataset import Purchase
from starling_demo.expected import expected_changes
from starling_demo.expected_messages import HELD_OUT, MAILED, Message, differences, expected_messages, is_held_out, murmur3_32
from starling_demo.mailbox import Mailbox
from starling_demo.scenario import address

DAY = 86_400_000
START = parse_instant("1997-01-01")
WRITTEN_TO = next(user for user in map("ada-{}".format, range(99)) if not is_held_out(user))
KEPT_BACK = next(user for user in map("bob-{}".format, range(99)) if is_held_out(user))


def messages_of(days: list[int], user: str = WRITTEN_TO) -> list[tuple[int, str, bool]]:
    purchases = [Purchase(line, user, START + day * DAY, 1, 10.0) for line, day in enumerate(days, 1)]
    found = expected_messages(purchases, expected_changes(purchases)["repeat-buyers"])
    return [((one.at - START) // DAY, one.fate, one.converted) for one in found.get(user, [])]


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        pytest.param([0], [], id="never a repeat buyer"),
        pytest.param([0, 10], [(93, MAILED, False)], id="three days after the exit"),
        pytest.param([0, 80, 92], [(92, "left_segment", False), (173, MAILED, False)], id="back in time"),
        pytest.param([0, 10, 101], [(93, MAILED, True)], id="an order later is a conversion"),
        pytest.param([0, 10, 123], [(93, MAILED, True)], id="at the very end of the time"),
        pytest.param([0, 10, 124], [(93, MAILED, False)], id="a day too late"),
        pytest.param([0, 1, 93], [(93, "cancelled", False)], id="an order at the due instant cancels"),
        pytest.param([0, 89, 95], [(93, MAILED, True), (182, "capped", False)], id="within 90 days of the first mail"),
        pytest.param([0, 89, 120], [(93, MAILED, True), (182, "capped", False)], id="a day before the slot is free"),
        pytest.param([0, 80, 94, 95], [(93, MAILED, True), (187, MAILED, False)], id="after 90 days"),
        pytest.param([0, 500], [], id="two orders far apart"),
        pytest.param([460, 470], [(553, MAILED, False)], id="before the end"),
        pytest.param([467, 468], [(560, MAILED, False)], id="due at the very end"),
        pytest.param([468, 469], [], id="due after the end"),
    ],
)
def test_the_expected_messages_match_a_manual_evaluation(days: list[int], expected: list[tuple[int, str, bool]]) -> None:
    assert messages_of(days) == expected


def test_a_person_who_is_held_out_gets_nothing_and_uses_no_slot() -> None:
    days = [0, 89, 95]
    assert messages_of(days, KEPT_BACK) == [(93, HELD_OUT, True), (182, HELD_OUT, False)]


def test_a_tenth_of_the_people_is_held_out() -> None:
    share = sum(is_held_out(f"customer-{number:05}") for number in range(1, 20_001)) / 20_000
    assert 0.09 < share < 0.11


@pytest.mark.parametrize(
    ("data", "digest"),
    [(b"", 0), (b"a", 0x3C2569B2), (b"abc", 0xB3DD93FA), (b"Hello, world!", 0xC0363E43), (b"aaaa", 0x7EEED987)],
)
def test_the_hash_equals_the_published_one(data: bytes, digest: int) -> None:
    assert murmur3_32(data) == digest


def test_each_other_message_is_a_difference() -> None:
    expected = {"ada": [Message(5, MAILED)], "bob": [Message(5, HELD_OUT)]}
    assert differences(expected, {name: list(messages) for name, messages in expected.items()}) == []
    found = differences(expected, {"ada": [Message(6, MAILED)], "eve": [Message(5, MAILED)]})
    assert [line.split(": ")[1] for line in found] == ["ada", "bob", "eve"]


def test_each_missing_and_each_unexpected_mail_is_a_difference() -> None:
    mailbox = Mailbox()
    try:
        with smtplib.SMTP("127.0.0.1", mailbox.port) as client:
            for user in ("ada", "ada", "bob"):
                client.sendmail("shop@example.com", [address(user)], "Subject: Hello\r\n\r\nHello")
    finally:
        mailbox.close()
    due = [("ada", Message(5, MAILED)), ("bob", Message(5, MAILED)), ("bob", Message(9, "capped")), ("eve", Message(5, MAILED))]
    assert mailbox.differences(due) == [
        "mailbox: ada@example.com: expected 1 mails, found 2",
        "mailbox: eve@example.com: expected 1 mails, found 0",
    ]
