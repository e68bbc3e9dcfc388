"""What should have come out of the stages before the segments: the accepted items folded by one plain loop, a user at a time."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starling_common.time.instants import parse_instant
from starling_common.wire import Codec
from starling_stream.fold.arrivals import arrival_key
from tests.faults.log import Logged

_NAMES = {"page": "Page Viewed"}


@dataclass(frozen=True)
class Item:
    """An accepted item. `arrived`: the key of the order of arrival; `origin`: topic, partition and offset of its record."""

    user: str
    message_id: str
    kind: str
    arrived: int
    origin: tuple[str, int, int]
    body: Mapping[str, Any]

    @property
    def name(self) -> str:
        return _NAMES.get(self.kind) or str(self.body.get("event"))

    @property
    def event_time(self) -> int:
        return parse_instant(self.body["timestamp"])


@dataclass
class User:
    """A user after all items: events by message id, the last traits, the sums of the computed traits."""

    events: dict[str, Item] = field(default_factory=dict)
    identified: dict[str, Item] = field(default_factory=dict)
    traits: dict[str, Any] = field(default_factory=dict)
    spent: int = 0
    orders: int = 0


@dataclass
class Accepted:
    """`repeats`: records whose message id had come before, as after a lost answer; each has an outcome of its own."""

    items: list[Item]
    first: dict[str, Item] = field(default_factory=dict)
    repeats: int = 0
    users: dict[str, User] = field(default_factory=lambda: defaultdict(User))


def accepted(log: Mapping[str, Mapping[int, Iterable[Logged]]], codec: Codec, topics: Iterable[str]) -> Accepted:
    """The items of the `ingest.*` topics, in the order of arrival: one that the broker appended late is ordered by the append."""
    items = [_item(logged, codec) for topic in topics for records in log[topic].values() for logged in records]
    found = Accepted(sorted(items, key=lambda item: item.arrived))
    for item in found.items:
        if item.message_id in found.first:
            found.repeats += 1
            continue
        found.first[item.message_id] = item
        _fold(found.users[item.user], item)
    return found


def _item(logged: Logged, codec: Codec) -> Item:
    record = codec.decode(logged.value)
    origin = (logged.topic, logged.partition, logged.offset)
    arrived = arrival_key(record["received_at"], logged.timestamp_ms)
    return Item(record["user_id"], record["message_id"], record["kind"], arrived, origin, json.loads(record["item"]))


def _fold(user: User, item: Item) -> None:
    if item.kind == "identify":
        user.identified[item.message_id] = item
        user.traits |= item.body["traits"]
        return
    user.events[item.message_id] = item
    if item.name == "Order Completed":
        user.orders += 1
        user.spent += item.body["properties"]["revenue"]
