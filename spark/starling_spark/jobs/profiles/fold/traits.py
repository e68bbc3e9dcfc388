"""Pure core: one user's computed traits: their state, and the values that changed at an instant.

The aggregates are those of the segment language, so a trait has the value that a segment would compute.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Final

import msgspec

from starling_common.failures import is_of_installation
from starling_segments import UserState, dec_hook, enc_hook
from starling_segments.measures import CompiledMeasure
from starling_spark.jobs.profiles.definitions.plans import TraitPlan

FORMAT: Final = 4
"""Version of the state format, part of the checkpoint's name. A new version starts a new checkpoint, which publishes every value
again."""

_LONGEST_STORED: Final = 64
NEVER: Final = 1 << 62
"""An instant that stream time does not reach."""


class UserTraits(msgspec.Struct, array_like=True, gc=False):
    """One user's state, bounded by the definitions: the aggregates, and the published values by the trait's index.

    `published`: the value as JSON text (a hash of a long one), None for no value. `due`: the next evaluation of a value; `NEVER`:
    the trait has had a match, and is not in force before the first step ends. `filed`: the start of the user's slot in the timer
    wheel. `unused`: of earlier releases. `step`: the one whose traits are in force for the user; `written_at`: that of the plan
    which wrote the state. `is_waiting`: on the bucket's list of users with matches of a trait that is not in force.
    """

    state: UserState = msgspec.field(default_factory=UserState)
    published: dict[int, str | None] = msgspec.field(default_factory=dict)
    due: dict[int, int] = msgspec.field(default_factory=dict)
    filed: int | None = None
    unused: bool = False
    step: int = 0
    written_at: int = 0
    is_waiting: bool = False

    @property
    def is_empty(self) -> bool:
        """Return whether the state equals that of a user without events."""
        return not self.state.accumulators and not self.state.waiting and not self.published and not self.due


Value = tuple[int, str | None]
"""The index of a trait, and its value as JSON text; None: no value."""


_ENCODER = msgspec.msgpack.Encoder(enc_hook=enc_hook)
_DECODER = msgspec.msgpack.Decoder(UserTraits, dec_hook=dec_hook)
_TEXT = msgspec.json.Encoder()


def encode_user(user: UserTraits) -> bytes:
    """Return the bytes of a state."""
    return _ENCODER.encode(user)


def decode_user(data: bytes) -> UserTraits:
    """Return the state of bytes."""
    return _DECODER.decode(data)


def mark_due(user: UserTraits, plan: TraitPlan, numbers: Iterable[int], now_ms: int) -> None:
    """Make the traits of those leaves and marks due at `now_ms`."""
    due, is_in_force = user.due, user.step >= plan.step
    concerned = plan.concerned if is_in_force or plan.is_first else plan.before
    for number in numbers:
        for index in concerned[number]:
            due[index] = now_ms if is_in_force or not plan.is_first else NEVER


def changed_values(
    user: UserTraits, plan: TraitPlan, now_ms: int, failed: dict[int, Exception] | None = None, *, republish: bool = False
) -> list[Value]:
    """Return each value at `now_ms` that differs from the last published one, and mark it as published.

    Only due traits are evaluated. Afterwards all of `due` is later than `now_ms`, and a trait with an empty window, whose
    value is published, is deleted: a state contains the contents of windows, and lifetimes. `republish`: the first value of a
    trait is published even if it is the value of no match. A trait whose evaluation raises twice is put into `failed`; it keeps its
    published value, and is due again after the user's next match.
    """
    mark_due(user, plan, plan.measures.settle(user.state, now_ms), now_ms)
    due, published, changed = user.due, user.published, []
    empty: set[int] = set()
    for index in [index for index, instant in due.items() if instant <= now_ms]:
        reading = plan.readings[index]
        try:
            value, text, next_ms = _evaluated(reading, user.state, now_ms)
        except Exception as cause:
            if failed is None or is_of_installation(cause):
                raise
            failed[index] = cause
            del due[index]
            continue
        mark = text if text is None else _mark(text)
        is_of_no_match = value == (None if reading is None else reading.default)
        # The value of no match is not published to a user without a value, but an earlier query may have published one.
        if published.get(index, "") != mark and (index in published or not is_of_no_match or republish):
            changed.append((index, text))
        published[index] = mark
        if next_ms is not None:
            due[index] = next_ms
            continue
        del due[index]
        if is_of_no_match:
            empty.add(index)
    if empty:
        _forget(user, plan, empty)
    return changed


def _evaluated(reading: CompiledMeasure | None, state: UserState, now_ms: int) -> tuple[Any, str | None, int | None]:
    """Return the value, its JSON text, and the instant of its next evaluation. An evaluation that raises is repeated once."""
    if reading is None:
        return None, None, None
    try:
        value, next_ms = reading.read(state, now_ms)
    except Exception as cause:
        if is_of_installation(cause):
            raise
        value, next_ms = reading.read(state, now_ms)
    return value, None if value is None else _TEXT.encode(value).decode(), next_ms


def _forget(user: UserTraits, plan: TraitPlan, empty: Iterable[int]) -> None:
    """Delete the empty aggregates of these traits, and the published values that equal those of no match."""
    for index in empty:
        reading = plan.readings[index]
        numbers = () if reading is None else reading.leaves
        plan.measures.drop_empty(user.state, numbers)
        if not any(plan.measures.leaves[number].id in user.state.accumulators for number in numbers):
            del user.published[index]


def _mark(text: str) -> str:
    """Return the stored form of a value; `1.0` and `1` are equal."""
    if len(text) > _LONGEST_STORED:
        return blake2b(text.encode(), digest_size=16).hexdigest()
    return text.removesuffix(".0")
