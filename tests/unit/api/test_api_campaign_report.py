"""The report of a campaign over HTTP, on counts in memory."""

import pytest

from starling_api.definitions.kinds.kinds import CAMPAIGNS
from starling_api.reports.campaign_report import CountedArm, CountedDay
from starling_campaigns.lift import Arm
from tests.campaign_documents import full_campaign
from tests.unit.api.calls import call
from tests.unit.api.campaign_world import world
from tests.unit.api.memory import AUTHOR, World

PATH = "/v1/campaigns/win-back/report"
DAY = 20_454  # 2026-01-01


def reported() -> World:
    shop = world()
    shop.commands.define(CAMPAIGNS, AUTHOR, full_campaign())
    shop.campaign_counts.day_rows = [
        CountedDay(DAY + 1, 1, "a", {"REQUESTED": 3}, 0.0),
        CountedDay(DAY, 1, "a", {"REQUESTED": 2, "SENT": 2, "CONVERTED": 1, "SUPPRESSED:capped": 1}, 4.5),
        CountedDay(DAY, 1, "a", {"REQUESTED": 1, "HELD_OUT": 1, "HELD_OUT_CONVERTED": 1, "SUPPRESSED:expired": 2}, 0.25),
        CountedDay(DAY, 2, "", {"SUPPRESSED:left_segment": 1, "RETRYING": 1}, 0.0),
    ]
    shop.campaign_counts.arm_rows = [
        CountedArm("b", False, Arm(400, 40, 80.0)),
        CountedArm("a", False, Arm(100, 4, 4.0)),
        CountedArm("a", False, Arm(200, 26, 26.0)),
        CountedArm("a", True, Arm(100, 5, 5.0)),
        CountedArm("b", True, Arm(20, 1, 1.0)),
    ]
    return shop


def test_the_funnel_adds_up_the_partitions() -> None:
    found = call(reported(), "GET", PATH, role="see").json()["funnel"]
    assert [(row["day"], row["version"], row["variant"]) for row in found] == [
        ("2026-01-01", 1, "a"), ("2026-01-01", 2, None), ("2026-01-02", 1, "a"),
    ]  # fmt: skip
    assert found[0] == {
        "version": 1, "variant": "a", "day": "2026-01-01", "requested": 3, "sent": 2, "delivered": 0, "opened": 0, "clicked": 0,
        "bounced": 0, "complained": 0, "unsubscribed": 0, "failed": 0, "held_out": 1, "converted": 1, "held_out_converted": 1,
        "value": 4.75, "suppressed": {"capped": 1, "expired": 2},
    }  # fmt: skip
    assert found[1]["suppressed"] == {"left_segment": 1}


def test_the_lift_is_that_of_all_variants_and_of_each() -> None:
    overall, first, second = call(reported(), "GET", PATH, role="see").json()["lift"]
    assert (overall["variant"], first["variant"], second["variant"]) == (None, "a", "b")
    assert overall["written_to"] == {"people": 700, "converted": 70}
    assert overall["held_out"] == {"people": 120, "converted": 6}
    assert overall["difference"] == pytest.approx(0.05)
    assert overall["low"] < 0.05 < overall["high"]
    assert overall["value"] == pytest.approx(110 / 700 - 6 / 120)
    assert (overall["inconclusive"], first["inconclusive"], second["inconclusive"]) == (False, False, True)
    assert first["relative"] == pytest.approx(1.0)


def test_a_campaign_without_messages_has_an_empty_report() -> None:
    shop = world()
    shop.commands.define(CAMPAIGNS, AUTHOR, full_campaign())
    answer = call(shop, "GET", PATH, role="see").json()
    assert answer["funnel"] == []
    assert [(one["variant"], one["difference"], one["inconclusive"]) for one in answer["lift"]] == [(None, None, True)]


@pytest.mark.parametrize(
    ("query", "days"),
    [("?from=2026-01-02", ["2026-01-02"]), ("?to=2026-01-02", ["2026-01-01"] * 2), ("?from=2026-01-01&to=2026-01-01", [])],
)
def test_days_are_chosen(query: str, days: list[str]) -> None:
    assert [row["day"] for row in call(reported(), "GET", PATH + query, role="see").json()["funnel"]] == days


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/v1/campaigns/none/report", 404, "unknown_campaign"),
        (f"{PATH}?from=yesterday", 400, "bad_day"),
        (f"{PATH}?to=2026-13-01", 400, "bad_day"),
        (f"{PATH}?to=0001-01-01", 200, None),
    ],
)
def test_an_invalid_request_is_refused(path: str, status: int, code: str | None) -> None:
    answer = call(reported(), "GET", path, role="see")
    assert (answer.status_code, answer.json().get("code")) == (status, code)
