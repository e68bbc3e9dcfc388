"""Replays of a random past, compared with the feed of the real segmenter, without a broker and a registry."""

from collections.abc import Iterable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from starling_common.settings import Clock
from starling_spark.history.memberships import PAIR
from starling_spark.history.past import of_users, reached, timed
from starling_spark.jobs.replay.comparison.memberships import differences, table
from starling_spark.jobs.replay.fold.states import states
from starling_spark.jobs.replay.manifest import segments, setting
from tests.spark.history import BUY, DAY_MS, History, at, happened
from tests.unit.segmenter.segmenting import NOW_MICROS


def replayed(spark: SparkSession, past_feed: History, until_ms: int) -> tuple[DataFrame, Any]:
    past = timed(past_feed.frame(spark), Clock.EVENT)
    given = setting(past_feed.definitions, reached(past, until_ms, Clock.EVENT), until_ms)
    found = states(of_users(past, until_ms), given)
    return found.selectExpr("workspace", "user_id", "inline(memberships)").select(*PAIR), segments(given)


@pytest.mark.parametrize(("seed", "days"), [pytest.param(1, (12.25, 70), marks=pytest.mark.long), (3, (46,))])
def test_a_replay_equals_the_feed_of_the_segmenter(spark: SparkSession, seed: int, days: tuple[float, ...]) -> None:
    past_feed = happened(seed)
    assert len(past_feed.feed) > 150
    for day in days:
        found, about = replayed(spark, past_feed, at(day))
        compared = differences(past_feed.live(spark, at(day)), found, about)
        assert all(one.is_none for one in compared), (day, table(compared, about))
        assert sum(one.live for one in compared) > 5


@pytest.mark.long
def test_a_difference_names_the_segment_and_the_people(spark: SparkSession) -> None:
    past_feed = happened(1)
    found, about = replayed(spark, past_feed, at(70))
    live = past_feed.live(spark, at(70))
    gone = live.where("segment_key = 'lapsing'").orderBy("user_id").first()
    assert gone is not None
    spoilt = live.where(f"segment_key <> 'lapsing' OR user_id <> '{gone['user_id']}'")
    compared = {one.segment: one for one in differences(spoilt, found, about)}
    different = [one for one in compared.values() if not one.is_none]
    assert [(one.segment, one.only_live, one.only_replayed, list(one.examples)) for one in different] == [
        ("lapsing", 0, 1, [gone["user_id"]])
    ]
    assert compared["lapsing"].live == compared["lapsing"].replayed - 1
    assert [one.key for one in about if one.not_compared is not None] == ["big"]  # and the archived one is not among them
    assert [one.key for one in about] == [
        "abandoned",
        "all-team",
        "big",
        "buyers",
        "gold",
        "gold-buyers",
        "lapsing",
        "listed",
        "reached",
        "team",
    ]
    assert "not compared: default/big: it is paused" in table(list(compared.values()), about)


def test_under_the_wall_clock_time_goes_on_without_records(spark: SparkSession) -> None:
    past_feed = History()
    past_feed.define("quiet", {"all": [BUY, {"not": {**BUY, "within": "1d"}}]})
    past_feed.buy("ann", 0)
    for row in past_feed.past:
        row["instant_ms"] = row["received_at"] // 1000
    now_ms = NOW_MICROS // 1000
    for until_ms, expected in ((now_ms + DAY_MS // 2, set()), (now_ms + 2 * DAY_MS, {"ann"})):
        past = timed(past_feed.frame(spark), Clock.WALL)
        given = setting(past_feed.definitions, reached(past, until_ms, Clock.WALL), until_ms)
        found = states(of_users(past, until_ms), given).selectExpr("user_id", "inline(memberships)").collect()
        assert _names(found) == expected


def test_under_the_wall_clock_what_became_of_messages_counts_when_it_was_reported(spark: SparkSession) -> None:
    past_feed = History()
    past_feed.define("reached", {"event": "Message Delivered", "within": "1d"})
    past_feed.report("ann", "DELIVERED")
    past_feed.report("bob", "RETRYING")
    now_ms = NOW_MICROS // 1000
    for until_ms, expected in ((now_ms + DAY_MS // 2, {"ann"}), (now_ms + 2 * DAY_MS, set())):
        past = timed(past_feed.frame(spark), Clock.WALL)
        given = setting(past_feed.definitions, reached(past, until_ms, Clock.WALL), until_ms)
        found = states(of_users(past, until_ms), given).selectExpr("user_id", "inline(memberships)").collect()
        assert _names(found) == expected


def _names(rows: Iterable[Any]) -> set[str]:
    return {row["user_id"] for row in rows}
