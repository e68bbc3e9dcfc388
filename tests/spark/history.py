"""The history of the replays, and the feed of the segmenter for it."""

import json
import random
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from starling_common.kafka.topics import BEHAVIOUR, CLOCK, DELIVERY, LIST_MEMBERSHIP, PROFILE
from starling_common.values import record_key
from starling_spark.history.memberships import CHANGES, members, membership_changes, stays
from starling_spark.history.past import FIELDS, PAST
from tests.unit.segmenter.segmenting import NOW_MICROS, MemorySegmenter

DAY_MS = 86_400_000
BEGIN_MS = 1_700_000_000_000 // DAY_MS * DAY_MS
BUY = {"event": "Buy"}


class History:
    """A segmenter at work, and all that it was given."""

    def __init__(self) -> None:
        self.segmenter = MemorySegmenter()
        self.past: list[dict[str, Any]] = []
        self.definitions: list[dict[str, Any]] = []
        self.emitted: list[dict[str, Any]] = []
        self.given: list[tuple[str, bytes | None, bytes]] = []
        """(topic, key, value) of all that the segmenter was given."""
        self._number = 0
        feed = self.segmenter.task.feed

        def noted(topic: str, key: bytes | None, value: bytes, *more: Any) -> None:
            if topic in FIELDS:  # internal messages of accounts are no part of the history
                self.given.append((topic, key, value))
            feed(topic, key, value, *more)

        self.segmenter.task.feed = noted  # type: ignore[method-assign, assignment]

    @property
    def feed(self) -> list[tuple[Any, ...]]:
        """As `CHANGES`."""
        names = ("event_id", "workspace", "segment_key", "user_id", "status", "sequence", "effective_at")
        return [(*[record[name] for name in names], record["cause"]["kind"]) for record in self.emitted]

    def known_at(self, until_ms: int) -> set[bytes]:
        """Keys of those of whom something happened by then; stream time is the highest instant so far."""
        known, time_ms = set(), 0
        for row in self.past:
            time_ms = max(time_ms, row["instant_ms"] or 0)
            is_ignored = row.get("on_list") is False or row.get("name") == "RETRYING"
            if time_ms <= until_ms and row["key"] is not None and not is_ignored:
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
        fields: dict[str, Any] = {
            "change": "TRAITS",
            "message_id": "m",
            "anonymous_ids": [],
            "traits": json.dumps(traits),
            "group_id": group,
        }
        self._row(PROFILE, user, at_ms, **fields)
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
        self.emitted += self.segmenter.records()


def at(day: float) -> int:
    return BEGIN_MS + int(day * DAY_MS)


def happened(seed: int) -> History:
    """Two months of thirty people, late events among them; segments are made, changed and archived on the way."""
    past_feed, lots = History(), random.Random(seed)
    past_feed.define("buyers", {**BUY, "op": "gte", "value": 2, "within": "10d"})
    past_feed.define("lapsing", {"all": [BUY, {"not": {**BUY, "within": "7d"}}]})
    past_feed.define("abandoned", {"sequence": [BUY, {"not": BUY, "for": "2d"}], "within": "9d"})
    past_feed.define("gold", {"trait": "plan", "op": "eq", "value": "gold"})
    past_feed.define("team", {"account": {"match": "any", "where": {**BUY, "within": "4d"}}})
    past_feed.define("all-team", {"account": {"match": "all", "where": {"any": [{"segment": "team"}, {"segment": "gold"}]}}})
    past_feed.define("reached", {"event": "Message Delivered", "within": "6d"})
    for day in range(60):
        for _ in range(lots.randrange(9)):
            user, late = f"u{lots.randrange(30)}", lots.choice((0, 0, 0, 3.3))
            moment = at(day + lots.choice((0, 0.25, 0.5)) - late)
            match lots.randrange(7):
                case 0:
                    account = (int(user[1:]) + day // 20) % 9
                    past_feed.identify(user, {"plan": lots.choice(("gold", "free"))}, moment, f"g{account}" if account else None)
                case 1:
                    past_feed.put_on(user, is_on=lots.random() < 0.7)
                case 2 | 3:
                    past_feed.report(user, lots.choice(("DELIVERED", "DELIVERED", "CLICKED", "RETRYING")))
                case _:
                    past_feed.buy(user, moment, price=lots.randrange(1, 50))
        if day == 20:
            past_feed.define("gold-buyers", {"all": [{"segment": "gold"}, {"segment": "buyers"}]})
            past_feed.define("big", {**BUY, "measure": {"sum": "price"}, "op": "gte", "value": 60, "within": "15d"})
            past_feed.define("first", {"first_time": BUY, "within": "12d"})
        if day == 30:
            past_feed.define("listed", {"any": [{"list": "vip"}, {"not": {**BUY, "within": "30d"}}]})
            past_feed.define("buyers", {**BUY, "op": "gte", "value": 3, "within": "10d"}, version=2, action="REVISED")
        if day == 40:
            past_feed.define("first", {}, action="ARCHIVED")
            past_feed.define(
                "big", {**BUY, "measure": {"sum": "price"}, "op": "gte", "value": 60, "within": "15d"}, action="PAUSED"
            )
        if day == 45:
            past_feed.clock(at(47))
    past_feed.clock(at(61))  # the last instant is complete, so the users of an account have received its change
    return past_feed
