"""Pure core: leaves over what a user is: traits, and for how long; a place in a bucket."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from starling_segments.aggregates.accumulators import Since
from starling_segments.engine.leaves import Question, earlier
from starling_segments.engine.state import UserState
from starling_segments.language.paths import Reader
from starling_segments.language.tree import Bucket, Predicate, Trait


@dataclass(slots=True)
class TraitLeaf:
    """One predicate on one trait."""

    id: str
    read: Reader
    predicate: Predicate
    mask: int = 0

    def expire(self, state: UserState, now: int) -> int:
        """The leaf is due: set its next timer; returns the segments that hang on it."""
        self.refresh(state, now)
        return self.mask

    def turn(self, state: UserState, before: Mapping[str, Any], now: int) -> int:
        """The traits were `before`: returns the segments whose truth may have changed."""
        old, new = self.read(before), self.read(state.traits)
        if old is new:
            return 0
        self.refresh(state, now)
        return self.mask if self.predicate.holds(old, now) is not self.predicate.holds(new, now) else 0

    def next_change(self, state: UserState, now: int) -> int | None:
        """The earliest instant after `now` at which the truth can change by itself."""
        change = self.predicate.next_change
        return change(self.read(state.traits), now) if change else None

    def refresh(self, state: UserState, now: int) -> None:
        """Set the timer anew."""
        state.due.note(self.id, self.next_change(state, now))


@dataclass(slots=True)
class HeldLeaf:
    """One predicate on one trait, and since when it has been true without a break. Known since `begin` at the latest."""

    id: str
    read: Reader
    predicate: Predicate
    questions: list[Question] = field(default_factory=list)
    mask: int = 0

    def alone(self) -> HeldLeaf:
        """The same without segments."""
        return replace(self, questions=[], mask=0)

    def ask(self, question: Question) -> None:
        """Another segment hangs on it."""
        self.questions.append(question)
        self.mask |= question.mask

    def expire(self, state: UserState, now: int) -> int:
        """Look at the predicate at `now`, note a beginning or an end, and set the next timer."""
        since = state.accumulators.get(self.id)
        value = self.read(state.traits)
        if not self.predicate.holds(value, now):
            state.accumulators.drop(self.id)
        elif since is None:
            state.accumulators.put(self.id, Since(now))
        turn = None if self.predicate.next_change is None else self.predicate.next_change(value, now)
        for question in self.questions:
            turn = earlier(turn, self.turns(state, question, now))
        state.due.note(self.id, turn)
        return self.mask

    def turn(self, state: UserState, before: Mapping[str, Any], now: int) -> int:
        """The traits were `before`: returns the segments whose truth may have changed."""
        return 0 if self.read(before) is self.read(state.traits) else self.expire(state, now)

    def refresh(self, state: UserState, now: int) -> None:
        """As `expire`, after the plan changed."""
        if state.known:
            self.expire(state, now)

    def since(self, state: UserState) -> int | None:
        """Since when it has been true."""
        kept = state.accumulators.get(self.id)
        return None if kept is None else kept.at

    def turns(self, state: UserState, question: Question, now: int) -> int | None:
        """The earliest instant after `now` at which the answer can change by itself, the predicate staying as it is."""
        since = self.since(state)
        return None if since is None or question.moving is None else question.moving(since, now)


def held(leaf: Trait) -> Question:
    """Whether an instant (None: not at all) lies at least `held_for` and less than `held_less_than` back."""
    at_least, less_than = leaf.held_for_ms or 0, leaf.held_less_than_ms

    def holds(since: int | None, now: int) -> bool:
        return since is not None and now - since >= at_least and (less_than is None or now - since < less_than)

    def moving(since: int, now: int) -> int | None:
        turns = [since + length for length in (leaf.held_for_ms, less_than) if length is not None]
        return min((turn for turn in turns if turn > now), default=None)

    return Question(holds, moving=moving)


def is_in(bucket: Bucket, user_id: str) -> bool:
    """Whether the user falls into the bucket."""
    return bucket.low <= share_of(bucket.salt, user_id) < bucket.high


@lru_cache(maxsize=1 << 16)
def share_of(salt: str, user_id: str) -> float:
    """From 0 to 99.99: the same for the same salt and user, everywhere and for ever."""
    return murmur3_32(f"{salt}:{user_id}".encode("utf-8", "surrogatepass")) % 10_000 / 100


def murmur3_32(data: bytes) -> int:
    """MurmurHash3 x86 32 bit, seed 0, unsigned (Appleby; public domain)."""
    h, whole = 0, len(data) & ~3
    for i in range(0, whole, 4):
        h = _rotated(h ^ _scrambled(int.from_bytes(data[i : i + 4], "little")), 13) * 5 + 0xE6546B64 & 0xFFFFFFFF
    if len(data) > whole:
        h ^= _scrambled(int.from_bytes(data[whole:], "little"))
    h ^= len(data)
    h = (h ^ h >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return h ^ h >> 16


def _scrambled(k: int) -> int:
    return _rotated(k * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF


def _rotated(x: int, r: int) -> int:
    return (x << r | x >> (32 - r)) & 0xFFFFFFFF
