"""Pure core: the users, segments and events of the measurement, as bodies of `/v1/batch`."""

import json
import random
from collections.abc import Iterator, Mapping
from typing import Any, Final

from common import shop

SWITCHES: Final = 3
"""Most membership changes that one event causes by its switches."""
BATCH: Final = 100
"""Items of one request."""


def segments(count: int, changes: float) -> dict[str, dict[str, Any]]:
    """Return key -> `where` of `count` segments: the shop's, and one per switch property, which an event turns on or off."""
    switches = {f"switch-{number}": _switch(number) for number in range(_switches(changes))}
    return {**switches, **shop.mixed(max(0, count - len(switches)))}


def _switches(changes: float) -> int:
    return min(SWITCHES, -int(-changes // 1))


def _switch(number: int) -> dict[str, Any]:
    return {"event": "*", "measure": {"last": f"switch_{number}"}, "op": "eq", "value": 1}


class Load:
    """Users and their events. Each event turns each switch of its user with the same probability."""

    def __init__(self, users: int, changes: float, seed: int = 1) -> None:
        """`changes`: membership changes of an event by switches, 0 to 3; those of the shop's segments come on top."""
        self._users = users
        self._switches = _switches(changes)
        self._chance = changes / self._switches if self._switches else 0.0
        self._dice = random.Random(seed)
        self._on: dict[tuple[int, int], int] = {}
        self._sent = 0

    def profiles(self) -> Iterator[bytes]:
        """Yield the bodies that make every user known: one `identify` each."""
        dice = random.Random(7)
        items = (
            {
                "type": "identify",
                "userId": f"user-{number}",
                "messageId": f"identify-{number}",
                "traits": {
                    "plan": dice.choice(("free", "free", "free", "pro")),
                    "country": dice.choice(("DE", "FR", "JP", "BR", "US", "IN")),
                    "age": dice.randint(18, 80),
                    "email": f"user-{number}@example.com",
                },
            }
            for number in range(self._users)
        )
        return _bodies(items)

    def first_events(self) -> Iterator[bytes]:
        """Yield the bodies of one event for each user, in order, so that every user has a state."""
        return _bodies(self._event(number) for number in range(self._users))

    def events(self, count: int) -> Iterator[bytes]:
        """Yield the bodies of `count` events of random users."""
        return _bodies(self._event(self._dice.randrange(self._users)) for _ in range(count))

    def _event(self, user: int) -> Mapping[str, Any]:
        dice = self._dice
        self._sent += 1
        properties: dict[str, Any] = {
            "revenue": dice.randint(5, 200),
            "category": dice.choice(("shoes", "hats", "bags", "coats", "toys")),
            "product_id": f"sku-{dice.randrange(500)}",
            "quantity": dice.randint(1, 4),
            "currency": "EUR",
        }
        for number in range(self._switches):
            place = user, number
            if dice.random() < self._chance:
                self._on[place] = 1 - self._on.get(place, 0)
            properties[f"switch_{number}"] = self._on.get(place, 0)
        return {
            "type": "track",
            "userId": f"user-{user}",
            "event": dice.choices(shop.NAMES, shop.WEIGHTS)[0],
            "messageId": f"message-{self._sent}",
            "properties": properties,
        }


_CONTEXT: Final = {"library": {"name": "analytics-python", "version": "2.3.4"}, "ip": "192.0.2.7"}


def _bodies(items: Iterator[Mapping[str, Any]]) -> Iterator[bytes]:
    batch: list[Mapping[str, Any]] = []
    for item in items:
        batch.append(item)
        if len(batch) == BATCH:
            yield _body(batch)
            batch = []
    if batch:
        yield _body(batch)


def _body(batch: list[Mapping[str, Any]]) -> bytes:
    return json.dumps({"batch": batch, "context": _CONTEXT}).encode()
