"""Which faults come, and in which order: a pure function of the parts and the seed."""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

KINDS: Final = ("kill", "slow", "stop", "hang")
"""kill: SIGKILL. slow: stopped nine tenths of the time. stop: SIGSTOP for longer than any time-out, then SIGCONT. hang: SIGSTOP for
ever, where only a restart helps."""
PAIRS_A_ROUND: Final = 3


@dataclass(frozen=True)
class Fault:
    """One fault of one part, of two, or of all at once."""

    kind: str
    parts: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind} {' + '.join(self.parts)}"


def schedule(parts: Sequence[str], seed: int) -> Iterator[Fault]:
    """Endless. In each round every part, some pairs and everything at once have one fault; in four rounds a part has every kind."""
    dice = random.Random(f"{seed} schedule")
    first = {part: dice.randrange(len(KINDS)) for part in (*parts, "pair", "all")}
    for number in itertools.count():
        targets: list[tuple[str, tuple[str, ...]]] = [(part, (part,)) for part in parts]
        targets += [("pair", tuple(sorted(dice.sample(parts, 2)))) for _ in range(PAIRS_A_ROUND)]
        targets.append(("all", tuple(parts)))
        dice.shuffle(targets)
        for place, (name, hit) in enumerate(targets):
            shift = place if name == "pair" else 0
            yield Fault(KINDS[(first[name] + number + shift) % len(KINDS)], hit)
