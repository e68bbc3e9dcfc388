"""Pure core: the leaf nodes of trait conditions, and the test of bucket conditions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from starling_segments.aggregates.accumulators import Since
from starling_segments.engine.leaves import ValueTest, earlier
from starling_segments.engine.state import UserState
from starling_segments.language.paths import Reader
from starling_segments.language.tree import Bucket, Predicate, Trait


@dataclass(slots=True)
class TraitLeaf:
    """The leaf node of a predicate on a trait."""

    id: str
    read: Reader
    predicate: Predicate
    mask: int = 0

    def expire(self, state: UserState, now: int) -> int:
        """Handle the due timer; return the mask of the affected segments."""
        self.refresh(state, now)
        return self.mask

    def on_traits(self, state: UserState, before: Mapping[str, Any], now: int) -> int:
        """Evaluate again if the trait differs from that in `before`, the former traits; return the mask of affected segments."""
        old, new = self.read(before), self.read(state.traits)
        if old is new:
            return 0
        self.refresh(state, now)
        return self.mask if self.predicate.holds(old, now) is not self.predicate.holds(new, now) else 0

    def next_change(self, state: UserState, now: int) -> int | None:
        """Return the earliest instant after `now` at which time alone changes the truth."""
        change = self.predicate.next_change
        return change(self.read(state.traits), now) if change else None

    def refresh(self, state: UserState, now: int) -> None:
        """Set the timer."""
        state.due.set(self.id, self.next_change(state, now))


@dataclass(slots=True)
class HeldLeaf:
    """The leaf node of a trait condition with `held_for` or `held_less_than`: stores since when the predicate has been true."""

    id: str
    read: Reader
    predicate: Predicate
    value_tests: list[ValueTest] = field(default_factory=list)
    mask: int = 0

    def without_segments(self) -> HeldLeaf:
        """Return the leaf node without tests of segments."""
        return replace(self, value_tests=[], mask=0)

    def add_test(self, value_test: ValueTest) -> None:
        """Add the test of another segment."""
        self.value_tests.append(value_test)
        self.mask |= value_test.mask

    def expire(self, state: UserState, now: int) -> int:
        """Evaluate the predicate at `now`, store the start or end of its truth, and set the next timer."""
        since = state.accumulators.get(self.id)
        value = self.read(state.traits)
        if not self.predicate.holds(value, now):
            state.accumulators.drop(self.id)
        elif since is None:
            state.accumulators.put(self.id, Since(now))
        change_at = None if self.predicate.next_change is None else self.predicate.next_change(value, now)
        for value_test in self.value_tests:
            change_at = earlier(change_at, self.next_change_in(state, value_test, now))
        state.due.set(self.id, change_at)
        return self.mask

    def on_traits(self, state: UserState, before: Mapping[str, Any], now: int) -> int:
        """Evaluate again if the trait differs from that in `before`, the former traits; return the mask of affected segments."""
        return 0 if self.read(before) is self.read(state.traits) else self.expire(state, now)

    def refresh(self, state: UserState, now: int) -> None:
        """Evaluate the predicate after a switch of plans."""
        if state.known:
            self.expire(state, now)

    def since(self, state: UserState) -> int | None:
        """Return the instant since which the predicate has been true; None: it is false."""
        kept = state.accumulators.get(self.id)
        return None if kept is None else kept.at

    def next_change_in(self, state: UserState, value_test: ValueTest, now: int) -> int | None:
        """Return the earliest instant after `now` at which time alone changes the truth, with the predicate unchanged."""
        since = self.since(state)
        return None if since is None or value_test.next_change is None else value_test.next_change(since, now)


def held(leaf: Trait) -> ValueTest:
    """Return the test of a trait condition with `held_for` or `held_less_than`."""
    at_least, less_than = leaf.held_for_ms or 0, leaf.held_less_than_ms

    def holds(since: int | None, now: int) -> bool:
        return since is not None and now - since >= at_least and (less_than is None or now - since < less_than)

    def moving(since: int, now: int) -> int | None:
        changes_at = [since + length for length in (leaf.held_for_ms, less_than) if length is not None]
        return min((change_at for change_at in changes_at if change_at > now), default=None)

    return ValueTest(holds, next_change=moving)


def is_in(bucket: Bucket, user_id: str) -> bool:
    """Return whether the user is in the bucket."""
    return bucket.low <= share_of(bucket.salt, user_id) < bucket.high


@lru_cache(maxsize=1 << 16)
def share_of(salt: str, user_id: str) -> float:
    """Return a number from 0 to 99.99 that is always the same for a salt and a user."""
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
