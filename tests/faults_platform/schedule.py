"""Which faults come, in which order, and which of them overlap: a pure function of the parts and the seed."""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

KINDS: Final = ("kill", "slow", "stop", "hang")
"""kill: SIGKILL. slow: stopped nine tenths of the time. stop: SIGSTOP for longer than any time-out, then SIGCONT. hang: SIGSTOP for
ever, where only a restart helps."""
GUESTS: Final = {"stop": 4, "hang": 3, "slow": 2, "kill": 2}
"""How many faults of other parts come while a fault of that kind lasts, or its part starts again."""
PAIRS: Final = (*(["kill"] * 4), "stop", "hang")
"""The faults of two parts at once that come alone or with guests, in each round."""
_GUEST_KINDS: Final = ("kill", "kill", "kill", "slow")
_PAIR_SHARE: Final = 0.25
"""The share of guests that hit two parts."""
_SLOW_TO_START: Final = frozenset({"kafka", "cassandra", "spark"})
"""At most one of them is hit by the guests of a wave: half a minute passes until it is ready again."""


@dataclass(frozen=True)
class Fault:
    """One fault of one part, of two, or of all at once."""

    kind: str
    parts: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind} {' + '.join(self.parts)}"


@dataclass(frozen=True)
class Wave:
    """Faults that overlap: `guests` begin one after the other while `host` lasts. No part has two of them."""

    host: Fault
    guests: tuple[Fault, ...] = ()

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The host and the guests."""
        return (self.host, *self.guests)


def schedule(parts: Sequence[str], seed: int) -> Iterator[Wave]:
    """Endless. In each round every part and everything at once has a host of every kind; pairs and guests come in between."""
    dice = random.Random(f"{seed} schedule")
    for _ in itertools.count():
        yield from one_round(parts, dice)


def one_round(parts: Sequence[str], dice: random.Random) -> list[Wave]:
    """Return the waves of one round, in a random order."""
    hosts = [Fault(kind, (part,)) for kind in KINDS for part in parts]
    hosts += [Fault(kind, tuple(sorted(dice.sample(parts, 2)))) for kind in PAIRS]
    waves = [Wave(host, _guests(parts, host, dice)) for host in hosts]
    waves += [Wave(Fault(kind, tuple(parts))) for kind in KINDS]
    dice.shuffle(waves)
    return waves


def first_faults(waves: Iterator[Wave], count: int) -> list[Wave]:
    """Return the first waves with that number of faults in all; the last one may lose guests."""
    chosen: list[Wave] = []
    while count > 0:
        wave = next(waves)
        chosen.append(replace(wave, guests=wave.guests[: count - 1]))
        count -= len(chosen[-1].faults)
    return chosen


def _guests(parts: Sequence[str], host: Fault, dice: random.Random) -> tuple[Fault, ...]:
    others = [part for part in parts if part not in host.parts]
    dice.shuffle(others)
    slow = [part for part in others if part in _SLOW_TO_START][1:]
    left = [part for part in others if part not in slow]
    guests: list[Fault] = []
    while left and len(guests) < GUESTS[host.kind]:
        hit = [left.pop()]
        if left and dice.random() < _PAIR_SHARE:
            hit.append(left.pop())
        guests.append(Fault(dice.choice(_GUEST_KINDS), tuple(sorted(hit))))
    return tuple(guests)
