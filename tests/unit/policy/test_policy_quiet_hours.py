"""Quiet hours by the local time of the person: across midnight, in both clock changes, and in odd time zones."""

from zoneinfo import available_timezones

import pytest

from tests.unit.policy.making import DAY_MS, MINUTE_MS, at, decision, message, outcome, person, policy

BERLIN = "Europe/Berlin"
NIGHT = {"from": "21:00", "to": "08:00"}


def in_berlin(quiet: dict[str, str], instant: int) -> str:
    """Return the outcome of a message that is due at the instant."""
    return outcome(message(instant), person(traits={"timezone": BERLIN}), policy(quiet_hours=quiet))


@pytest.mark.parametrize(
    ("due", "until"),
    [
        ("2026-06-01T20:59:59.999", None),
        ("2026-06-01T21:00", "2026-06-02T08:00"),
        ("2026-06-01T23:59:59.999", "2026-06-02T08:00"),
        ("2026-06-02T00:00", "2026-06-02T08:00"),
        ("2026-06-02T07:59:59.999", "2026-06-02T08:00"),
        ("2026-06-02T08:00", None),
    ],
)
def test_quiet_hours_across_midnight(due: str, until: str | None) -> None:
    wanted = "send" if until is None else f"quiet_hours until {at(until, BERLIN)}"
    assert in_berlin(NIGHT, at(due, BERLIN)) == wanted


def test_quiet_hours_within_a_day() -> None:
    lunch = {"from": "12:00", "to": "13:30"}
    assert in_berlin(lunch, at("2026-06-01T11:59:59.999", BERLIN)) == "send"
    assert in_berlin(lunch, at("2026-06-01T12:00", BERLIN)) == f"quiet_hours until {at('2026-06-01T13:30', BERLIN)}"
    assert in_berlin(lunch, at("2026-06-01T13:30", BERLIN)) == "send"


def test_the_night_of_either_clock_change_ends_at_the_local_time() -> None:
    spring, autumn = at("2026-03-28T21:00", BERLIN), at("2026-10-24T21:00", BERLIN)
    assert in_berlin(NIGHT, spring) == f"quiet_hours until {spring + 10 * 60 * MINUTE_MS}"  # eleven hours without the skipped one
    assert in_berlin(NIGHT, autumn) == f"quiet_hours until {autumn + 12 * 60 * MINUTE_MS}"


def test_an_end_in_the_skipped_hour_is_the_instant_of_the_change() -> None:
    change = at("2026-03-29T03:00", BERLIN)
    assert in_berlin({"from": "21:00", "to": "02:30"}, change - 1) == f"quiet_hours until {change}"
    assert in_berlin({"from": "21:00", "to": "02:30"}, change) == "send"


def test_a_beginning_in_the_skipped_hour_is_the_instant_of_the_change() -> None:
    change = at("2026-03-29T03:00", BERLIN)
    quiet = {"from": "02:30", "to": "04:00"}
    assert in_berlin(quiet, change - 1) == "send"
    assert in_berlin(quiet, change) == f"quiet_hours until {change + 60 * MINUTE_MS}"


def test_quiet_hours_inside_the_skipped_hour_do_not_occur() -> None:
    change = at("2026-03-29T03:00", BERLIN)
    quiet = {"from": "02:15", "to": "02:45"}
    assert [in_berlin(quiet, change + ms) for ms in (-1, 0)] == ["send", "send"]
    found = decision(message(change - 1), person(traits={"timezone": BERLIN}), policy(quiet_hours=quiet))
    assert found.next_change_at == at("2026-03-30T02:15", BERLIN)


def test_a_repeated_hour_is_quiet_twice() -> None:
    quiet = {"from": "21:00", "to": "02:30"}
    first, second = at("2026-10-25T02:30", BERLIN), at("2026-10-25T02:30", BERLIN, fold=1)
    change = at("2026-10-25T02:00", BERLIN, fold=1)
    assert second - first == 60 * MINUTE_MS
    assert in_berlin(quiet, first - 1) == f"quiet_hours until {first}"
    assert in_berlin(quiet, first) == "send"
    assert in_berlin(quiet, change - 1) == "send"
    assert in_berlin(quiet, change) == f"quiet_hours until {second}"
    assert in_berlin(quiet, second) == "send"


def test_a_deferral_ends_at_the_first_end_of_a_repeated_hour() -> None:
    assert in_berlin({"from": "21:00", "to": "02:30"}, at("2026-10-24T22:00", BERLIN)).endswith(str(at("2026-10-25T02:30", BERLIN)))


def test_a_day_that_a_zone_left_out() -> None:
    apia, due = "Pacific/Apia", at("2011-12-29T22:00", "Pacific/Apia")
    found = outcome(message(due), person(traits={"timezone": apia}), policy(quiet_hours=NIGHT))
    assert found == f"quiet_hours until {due + 10 * 60 * MINUTE_MS}"
    assert due + 10 * 60 * MINUTE_MS == at("2011-12-31T08:00", apia)


@pytest.mark.parametrize(
    "zone", ["Mars/Olympus", "", " ", "../etc/passwd", "/etc/localtime", "localtime", "a" * 5000, 7, None, [], "\0"]
)
def test_an_invalid_zone_of_the_person_falls_back_to_that_of_the_workspace(zone: object) -> None:
    tokyo = policy(timezone="Asia/Tokyo", quiet_hours=NIGHT)
    due = at("2026-06-01T22:00", "Asia/Tokyo")
    assert (
        outcome(message(due), person(traits={"timezone": zone}), tokyo)
        == f"quiet_hours until {at('2026-06-02T08:00', 'Asia/Tokyo')}"
    )


def test_without_a_zone_anywhere_it_is_utc() -> None:
    due = at("2026-06-01T22:00")
    assert outcome(message(due), rules=policy(quiet_hours=NIGHT)) == f"quiet_hours until {at('2026-06-02T08:00')}"


def test_every_zone_has_an_end_of_the_night_within_a_day_around_the_year() -> None:
    rules = policy(quiet_hours=NIGHT)
    zones = sorted(available_timezones() - {"localtime", "Factory"})
    assert len(zones) > 400
    for number, zone in enumerate(zones):
        due = at("2026-01-01T00:00") + number % 365 * DAY_MS
        found = decision(message(due), person(traits={"timezone": zone}), rules)
        assert found.next_change_at is not None
        assert due < found.next_change_at <= due + DAY_MS + 1, zone


@pytest.mark.parametrize("instant", [-(10**17), -62_135_596_800_000, 253_402_300_799_999, 10**17])
def test_instants_beyond_the_calendar_have_the_offset_of_its_end(instant: int) -> None:
    found = decision(message(instant), person(traits={"timezone": BERLIN}), policy(quiet_hours=NIGHT))
    assert found.next_change_at is not None
    assert instant < found.next_change_at <= instant + DAY_MS + 1
