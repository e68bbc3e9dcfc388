"""The instants of broadcasts: one for all, or a local time by each user's clock."""

from zoneinfo import available_timezones

import pytest

from starling_campaigns.definitions.triggers import BroadcastTrigger
from starling_common.time.instants import format_instant
from starling_messages.broadcasts import due_at, instance_of, listed_at


def local(time: str) -> BroadcastTrigger:
    return BroadcastTrigger("vips", local=time)


def test_an_instant_is_the_same_in_every_zone() -> None:
    trigger = BroadcastTrigger("vips", at_ms=1_796_115_600_000)
    assert listed_at(trigger) == due_at(trigger, "Asia/Tokyo") == due_at(trigger, "America/New_York") == 1_796_115_600_000
    assert instance_of(trigger) == format_instant(1_796_115_600_000)


def test_a_local_time_is_listed_where_it_comes_first() -> None:
    trigger = local("2026-12-01T09:00")
    assert format_instant(listed_at(trigger)) == "2026-11-30T19:00:00.000Z"
    assert due_at(trigger, "Pacific/Kiritimati") == listed_at(trigger)
    assert instance_of(trigger) == "2026-12-01T09:00"


@pytest.mark.parametrize(
    ("time", "zone", "expected"),
    [
        pytest.param("2026-12-01T09:00", "Asia/Tokyo", "2026-12-01T00:00:00.000Z", id="no change of the clock"),
        pytest.param("2026-03-29T02:30", "Europe/Berlin", "2026-03-29T01:00:00.000Z", id="in a gap: the instant after it"),
        pytest.param("2026-10-25T02:30", "Europe/Berlin", "2026-10-25T00:30:00.000Z", id="shown twice: the first one"),
        pytest.param("2026-10-04T02:15", "Australia/Lord_Howe", "2026-10-03T15:30:00.000Z", id="in a gap of half an hour"),
        pytest.param("2026-04-05T01:45", "Australia/Lord_Howe", "2026-04-04T14:45:00.000Z", id="half an hour shown twice"),
    ],
)
def test_a_local_time_goes_by_the_clock_of_the_zone(time: str, zone: str, expected: str) -> None:
    assert format_instant(due_at(local(time), zone)) == expected


@pytest.mark.parametrize("time", ["2026-03-29T02:30", "2026-10-25T02:30", "2026-12-31T23:59", "2028-02-29T00:00"])
def test_no_user_of_any_zone_is_due_before_the_members_are_listed(time: str) -> None:
    zones = sorted(available_timezones() - {"localtime", "Factory"})
    assert [zone for zone in zones if due_at(local(time), zone) < listed_at(local(time))] == []
