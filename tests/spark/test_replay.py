"""Replays of a random past, beside what the real segmenter told of it while it happened: no broker, no registry."""

import json
import random
from collections.abc import Iterable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from starling_common.settings import Clock
from starling_common.topics import BEHAVIOUR, CLOCK, DELIVERY, LIST_MEMBERSHIP, PROFILE
from starling_common.values import record_key
from starling_spark.history.memberships import CHANGES, PAIR, members, membership_changes, stays
from starling_spark.history.past import FIELDS, PAST, of_users, reached, timed
from starling_spark.jobs.replay.comparing import differences, table
from starling_spark.jobs.replay.manifest import segments, setting
from starling_spark.jobs.replay.states import states
from tests.unit.segmenter.segmenting import NOW_MICROS, MemorySegmenter

DAY_MS = 86_400_000
BEGIN_MS = 1_700_000_000_000 // DAY_MS * DAY_MS
BUY = {"event": "Buy"}


class Told:
    """A segmenter at work, and all that it was given."""

    def __init__(self) -> None:
        self.segmenter = MemorySegmenter()
        self.past: list[dict[str, Any]] = []
        self.definitions: list[dict[str, Any]] = []
        self.announced: list[dict[str, Any]] = []
        self.given: list[tuple[str, bytes | None, bytes]] = []
        """(topic, key, value) of all that the segmenter was given."""
        self._number = 0
        feed = self.segmenter.task.feed

        def noted(topic: str, key: bytes | None, value: bytes, *more: Any) -> None:
            if topic in FIELDS:  # what accounts say among themselves is no part of the past
                self.given.append((topic, key, value))
            feed(topic, key, value, *more)

        self.segmenter.task.feed = noted  # type: ignore[method-assign, assignment]

    @property
    def feed(self) -> list[tuple[Any, ...]]:
        """As `CHANGES`."""
        names = ("event_id", "workspace", "segment_key", "user_id", "status", "sequence", "effective_at")
        return [(*[record[name] for name in names], record["cause"]["kind"]) for record in self.announced]

    def known_at(self, until_ms: int) -> set[bytes]:
        """Keys of those of whom something happened by then; stream time is the highest instant so far."""
        known, time_ms = set(), 0
        for row in self.past:
            time_ms = max(time_ms, row["instant_ms"] or 0)
            says_nothing = row.get("on_list") is False or row.get("name") == "RETRYING"
            if time_ms <= until_ms and row["key"] is not None and not says_nothing:
                known.add(bytes(row["key"]))
        return known

    def define(self, key: str, where: object, *, version: int = 1, action: str = "DEFINED") -> None:
        document = {"key": key, "name": key, "where": where}
        self.definitions.append(
            {
                "recorded_at": self._micros(), "kind": "segment", "workspace": "default", "key": key, "version": version,
                "action": action, "document": json.dumps(document), "correlation_id": "c",
            }
        )  # fmt: skip
        self.segmenter.define(key, where, version=version, action=action)
        self._read()

    def buy(self, user: str, at_ms: int, **properties: Any) -> None:
        self._row(
            BEHAVIOUR, user, at_ms, name="Buy", message_id="m", anonymous_ids=[], properties=json.dumps(properties), context="{}"
        )
        self.segmenter.track(user, "Buy", at_ms, properties, received_at=self._last())
        self._read()

    def identify(self, user: str, traits: dict[str, Any], at_ms: int, group: str | None = None) -> None:
        said: dict[str, Any] = {
            "change": "TRAITS",
            "message_id": "m",
            "anonymous_ids": [],
            "traits": json.dumps(traits),
            "group_id": group,
        }
        self._row(PROFILE, user, at_ms, **said)
        self.segmenter.identify(user, traits, at_ms, received_at=self._last(), group_id=group)
        self._read()

    def put_on(self, user: str, *, is_on: bool) -> None:
        self._row(LIST_MEMBERSHIP, user, None, list_key="vip", on_list=is_on)
        self.segmenter.listed(user, "vip", is_on=is_on, received_at=self._last())
        self._read()

    def report(self, user: str, outcome: str) -> None:
        """By the wall clock, of an item received long ago."""
        self._row(DELIVERY, user, None, name=outcome, properties='{"attempt": 1}')
        wall_ms = self._last() // 1000
        self.segmenter.report(user, outcome, wall_ms)
        self._read()

    def clock(self, at_ms: int) -> None:
        self._row(CLOCK, None, at_ms)
        self.segmenter.clock(at_ms, received_at=self._last())
        self._read()

    def frame(self, spark: SparkSession) -> DataFrame:
        rows = [tuple(one.get(name) for name in PAST.fieldNames()) for one in self.past]
        random.Random(1).shuffle(rows)  # in whatever order Kafka gives them
        return spark.createDataFrame(rows, PAST)

    def live(self, spark: SparkSession, until_ms: int) -> DataFrame:
        return members(stays(membership_changes(spark.createDataFrame(self.feed, CHANGES), until_ms)))

    def _row(self, topic: str, user: str | None, at_ms: int | None, **fields: Any) -> None:
        place = list(FIELDS).index(topic)
        key = None if user is None else bytearray(record_key("default", user))
        own = {"partition": 0, "place": place, "offset": len(self.past), "key": key, "correlation_id": "c", "refused": False}
        self.past.append(own | {"received_at": self._micros(), "instant_ms": at_ms} | fields)

    def _micros(self) -> int:
        self._number += 1
        return NOW_MICROS + self._number * 1000

    def _last(self) -> int:
        return int(self.past[-1]["received_at"])

    def _read(self) -> None:
        self.segmenter.deliver()
        self.announced += self.segmenter.records()


def at(day: float) -> int:
    return BEGIN_MS + int(day * DAY_MS)


def happened(seed: int) -> Told:
    """Two months of thirty people, late events among them; segments are made, changed and archived on the way."""
    told, lots = Told(), random.Random(seed)
    told.define("buyers", {**BUY, "op": "gte", "value": 2, "within": "10d"})
    told.define("lapsing", {"all": [BUY, {"not": {**BUY, "within": "7d"}}]})
    told.define("abandoned", {"sequence": [BUY, {"not": BUY, "for": "2d"}], "within": "9d"})
    told.define("gold", {"trait": "plan", "op": "eq", "value": "gold"})
    told.define("team", {"account": {"match": "any", "where": {**BUY, "within": "4d"}}})
    told.define("all-team", {"account": {"match": "all", "where": {"any": [{"segment": "team"}, {"segment": "gold"}]}}})
    told.define("reached", {"event": "Message Delivered", "within": "6d"})
    for day in range(60):
        for _ in range(lots.randrange(9)):
            user, late = f"u{lots.randrange(30)}", lots.choice((0, 0, 0, 3.3))
            moment = at(day + lots.choice((0, 0.25, 0.5)) - late)
            match lots.randrange(7):
                case 0:
                    account = (int(user[1:]) + day // 20) % 9
                    told.identify(user, {"plan": lots.choice(("gold", "free"))}, moment, f"g{account}" if account else None)
                case 1:
                    told.put_on(user, is_on=lots.random() < 0.7)
                case 2 | 3:
                    told.report(user, lots.choice(("DELIVERED", "DELIVERED", "CLICKED", "RETRYING")))
                case _:
                    told.buy(user, moment, price=lots.randrange(1, 50))
        if day == 20:
            told.define("gold-buyers", {"all": [{"segment": "gold"}, {"segment": "buyers"}]})
            told.define("big", {**BUY, "measure": {"sum": "price"}, "op": "gte", "value": 60, "within": "15d"})
            told.define("first", {"first_time": BUY, "within": "12d"})
        if day == 30:
            told.define("listed", {"any": [{"list": "vip"}, {"not": {**BUY, "within": "30d"}}]})
            told.define("buyers", {**BUY, "op": "gte", "value": 3, "within": "10d"}, version=2, action="REVISED")
        if day == 40:
            told.define("first", {}, action="ARCHIVED")
            told.define("big", {**BUY, "measure": {"sum": "price"}, "op": "gte", "value": 60, "within": "15d"}, action="PAUSED")
        if day == 45:
            told.clock(at(47))
    told.clock(at(61))  # the last instant is over: who hears of an account just then has seen it, and nobody else
    return told


def replayed(spark: SparkSession, told: Told, until_ms: int) -> tuple[DataFrame, Any]:
    past = timed(told.frame(spark), Clock.EVENT)
    given = setting(told.definitions, reached(past, until_ms, Clock.EVENT), until_ms)
    found = states(of_users(past, until_ms), given)
    return found.selectExpr("workspace", "user_id", "inline(memberships)").select(*PAIR), segments(given)


@pytest.mark.parametrize(("seed", "days"), [(1, (12.25, 70)), (3, (46,))])
def test_a_replay_is_what_the_segmenter_told(spark: SparkSession, seed: int, days: tuple[float, ...]) -> None:
    told = happened(seed)
    assert len(told.feed) > 150
    for day in days:
        found, about = replayed(spark, told, at(day))
        compared = differences(told.live(spark, at(day)), found, about)
        assert all(one.is_none for one in compared), (day, table(compared, about))
        assert sum(one.live for one in compared) > 5


def test_a_difference_names_the_segment_and_the_people(spark: SparkSession) -> None:
    told = happened(1)
    found, about = replayed(spark, told, at(70))
    live = told.live(spark, at(70))
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
    told = Told()
    told.define("quiet", {"all": [BUY, {"not": {**BUY, "within": "1d"}}]})
    told.buy("ann", 0)
    for row in told.past:
        row["instant_ms"] = row["received_at"] // 1000
    now_ms = NOW_MICROS // 1000
    for until_ms, expected in ((now_ms + DAY_MS // 2, set()), (now_ms + 2 * DAY_MS, {"ann"})):
        past = timed(told.frame(spark), Clock.WALL)
        given = setting(told.definitions, reached(past, until_ms, Clock.WALL), until_ms)
        found = states(of_users(past, until_ms), given).selectExpr("user_id", "inline(memberships)").collect()
        assert _names(found) == expected


def test_under_the_wall_clock_what_became_of_messages_counts_when_it_was_reported(spark: SparkSession) -> None:
    told = Told()
    told.define("reached", {"event": "Message Delivered", "within": "1d"})
    told.report("ann", "DELIVERED")
    told.report("bob", "RETRYING")
    now_ms = NOW_MICROS // 1000
    for until_ms, expected in ((now_ms + DAY_MS // 2, {"ann"}), (now_ms + 2 * DAY_MS, set())):
        past = timed(told.frame(spark), Clock.WALL)
        given = setting(told.definitions, reached(past, until_ms, Clock.WALL), until_ms)
        found = states(of_users(past, until_ms), given).selectExpr("user_id", "inline(memberships)").collect()
        assert _names(found) == expected


def _names(rows: Iterable[Any]) -> set[str]:
    return {row["user_id"] for row in rows}
