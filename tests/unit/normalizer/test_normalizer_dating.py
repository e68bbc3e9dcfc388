"""When a call happened: the contract's rules as a table."""

import pytest

from starling_common.outcome import Refused
from starling_common.time.instants import format_instant, parse_instant
from starling_items.dating import event_time

RECEIVED = parse_instant("2026-01-01T12:00:00Z")


@pytest.mark.parametrize(
    ("timestamp", "sent_at", "as_sent", "expected"),
    [
        pytest.param(None, None, False, "2026-01-01T12:00:00.000Z", id="nothing sent: when it was received"),
        pytest.param(None, "2026-01-01T11:00:00Z", False, "2026-01-01T12:00:00.000Z", id="sentAt alone has no effect"),
        pytest.param("2026-01-01T11:00:00Z", None, False, "2026-01-01T11:00:00.000Z", id="timestamp alone is taken"),
        pytest.param("2026-01-01T11:00:00+02:00", None, False, "2026-01-01T09:00:00.000Z", id="offsets count"),
        pytest.param("2026-01-01T11:00:00.123456+00:00", None, False, "2026-01-01T11:00:00.123Z", id="microseconds are cut"),
        pytest.param("2026-01-01", None, False, "2026-01-01T00:00:00.000Z", id="a bare date is its start in UTC"),
        pytest.param(
            "2026-01-01T09:59:50Z", "2026-01-01T10:00:00Z", False, "2026-01-01T11:59:50.000Z", id="clock two hours slow: corrected"
        ),
        pytest.param(
            "2027-01-01T09:59:50Z", "2027-01-01T10:00:00Z", False, "2026-01-01T11:59:50.000Z", id="clock a year fast: corrected"
        ),
        pytest.param("2026-01-01T12:05:00Z", None, False, "2026-01-01T12:05:00.000Z", id="five minutes ahead stays"),
        pytest.param("2026-01-01T12:05:00.001Z", None, False, "2026-01-01T12:00:00.000Z", id="more is a wrong clock"),
        pytest.param(
            "2026-01-01T10:10:00Z",
            "2026-01-01T10:00:00Z",
            False,
            "2026-01-01T12:00:00.000Z",
            id="ahead of its sending",
        ),
        pytest.param("1997-01-01T00:00:00Z", "2026-01-01T10:00:00Z", True, "1997-01-01T00:00:00.000Z", id="history: as it is"),
        pytest.param("2030-01-01T00:00:00Z", None, True, "2030-01-01T00:00:00.000Z", id="history may lie ahead"),
        pytest.param(None, None, True, "2026-01-01T12:00:00.000Z", id="history without a time: when it was received"),
        pytest.param("1997-01-01T00:00:00Z", "no time", True, "1997-01-01T00:00:00.000Z", id="history does not use sentAt"),
        pytest.param("1970-01-01T00:00:00Z", None, True, "1970-01-01T00:00:00.000Z", id="the first instant"),
        pytest.param("9999-12-31T23:59:59.999Z", None, True, "9999-12-31T23:59:59.999Z", id="the last instant"),
    ],
)
def test_event_time(timestamp: str | None, sent_at: str | None, as_sent: bool, expected: str) -> None:
    moment = event_time(timestamp, sent_at, RECEIVED, as_sent=as_sent)
    assert not isinstance(moment, Refused)
    assert format_instant(moment) == expected


@pytest.mark.parametrize(
    ("timestamp", "sent_at", "place"),
    [
        ("yesterday", None, "timestamp"),
        ("", None, "timestamp"),
        ("1767268800000", None, "timestamp"),
        ("2026-02-30T00:00:00Z", None, "timestamp"),
        ("1969-12-31T23:59:59.999Z", None, "timestamp"),
        ("0001-01-01T00:00:00+14:00", None, "timestamp"),
        ("9999-12-31T23:59:59-14:00", None, "timestamp"),
        ("2026-01-01T12:00:00Z", "now", "sentAt"),
        ("1970-01-01T00:00:00Z", "9999-01-01T00:00:00Z", "timestamp"),
    ],
)
def test_a_time_that_is_none_is_refused_by_name(timestamp: str, sent_at: str | None, place: str) -> None:
    refused = event_time(timestamp, sent_at, RECEIVED, as_sent=False)
    assert isinstance(refused, Refused)
    assert refused.code == "bad_timestamp"
    assert refused.message.startswith(f"{place}: ")
