"""The load of "1,000 segments of every kind": the segments of `segments_mix.py`, and what users do, as records."""

import json
import random
from collections.abc import Iterator
from typing import Any, Final

from common import shop
from segments_mix import NAMES, Mix, properties, traits

_SEED: Final = 0


def segments(count: int) -> dict[str, dict[str, Any]]:
    """Segment key -> `where`, each after those that it is built on: every leaf, measure and window in turn."""
    mix = Mix(_SEED)
    return {f"s{number}": mix.kinds[number % len(mix.kinds)](number) for number in range(count)}


def profiles() -> Iterator[tuple[bytes, dict[str, Any]]]:
    """One `ProfileChanged` for each user."""
    dice = random.Random(3)
    for key, record in shop.profiles():
        yield key, record | {"traits": json.dumps(traits(dice))}


def behaviour(count: int, seed: int, first_ms: int, span_ms: int) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """As `shop.behaviour`: forty kinds of events, each as frequent as the others."""
    dice = random.Random(seed)
    for key, record in shop.behaviour(count, seed, first_ms, span_ms):
        encoded = json.dumps(properties(dice))
        yield key, record | {"name": dice.choice(NAMES), "properties": encoded}
