"""Pure core: one user's computed traits: fold what happened, then say which values changed at an instant.

What is kept, and how, is the segment language's own: a value here is the value there.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

import msgspec

from starling_segments import UserState, dec_hook, enc_hook
from starling_spark.jobs.profiles.plans import TraitPlan

FORMAT: Final = 3
"""Of the state; part of the checkpoint's name, so that old state is never read as new. A new number starts a new checkpoint, which
publishes every value again."""

_LONGEST_KEPT: Final = 64


class UserTraits(msgspec.Struct, array_like=True, gc=False):
    """One user's state, bounded by the definitions: what their leaves keep, and by the trait's index what was told.

    `told`: the value as JSON text (of a long one a hash), None for no value. `due`: when the value is to be looked at
    next. `filed` is the start of the slot of the wheel where the user stands.
    """

    kept: UserState = msgspec.field(default_factory=UserState)
    told: dict[int, str | None] = msgspec.field(default_factory=dict)
    due: dict[int, int] = msgspec.field(default_factory=dict)
    filed: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is kept: it is as if nothing had ever happened."""
        return not self.kept.accumulators and not self.kept.waiting and not self.told and not self.due


Value = tuple[int, str | None]
"""The index of a trait, and its value as JSON text; None: it has none."""


_ENCODER = msgspec.msgpack.Encoder(enc_hook=enc_hook)
_DECODER = msgspec.msgpack.Decoder(UserTraits, dec_hook=dec_hook)
_TEXT = msgspec.json.Encoder()


def encode_user(user: UserTraits) -> bytes:
    """State to bytes."""
    return _ENCODER.encode(user)


def decode_user(data: bytes) -> UserTraits:
    """The inverse."""
    return _DECODER.decode(data)


def look_at(user: UserTraits, plan: TraitPlan, numbers: Iterable[int], now_ms: int) -> None:
    """The traits that those leaves and marks concern are due at `now_ms`."""
    due = user.due
    for number in numbers:
        for index in plan.concerned[number]:
            due[index] = now_ms


def settle(user: UserTraits, plan: TraitPlan, now_ms: int, *, republish: bool = False) -> list[Value]:
    """Each value at `now_ms` that differs from what was last told; they count as told.

    Only traits that are due are looked at. Afterwards all of `due` is later than `now_ms`, and a trait whose window is
    empty and said so is forgotten: a state holds what is inside windows, and lifetimes. `republish`: the first value of a
    trait is published even where it is that of no match.
    """
    look_at(user, plan, plan.measures.settle(user.kept, now_ms), now_ms)
    due, told, news = user.due, user.told, []
    empty: set[int] = set()
    for index in [index for index, instant in due.items() if instant <= now_ms]:
        reading = plan.readings[index]
        value, turn = None, None
        if reading is not None:
            value, turn = reading.look(user.kept, now_ms)
        text = None if value is None else _TEXT.encode(value).decode()
        mark = text if text is None else _mark(text)
        says_nothing = value == (None if reading is None else reading.nothing)
        # The value of no match is not published to a user without a value, but an earlier query may have published one.
        if told.get(index, "") != mark and (index in told or not says_nothing or republish):
            news.append((index, text))
        told[index] = mark
        if turn is not None:
            due[index] = turn
            continue
        del due[index]
        if says_nothing:
            empty.add(index)
    if empty:
        _forget(user, plan, empty)
    return news


def _forget(user: UserTraits, plan: TraitPlan, empty: Iterable[int]) -> None:
    """Drop what says as much as nothing at all."""
    for index in empty:
        reading = plan.readings[index]
        numbers = () if reading is None else reading.leaves
        plan.measures.drop_empty(user.kept, numbers)
        if not any(plan.measures.leaves[number].id in user.kept.accumulators for number in numbers):
            del user.told[index]


def _mark(text: str) -> str:
    """What is remembered of a value: `1.0` and `1` are one."""
    if len(text) > _LONGEST_KEPT:
        return blake2b(text.encode(), digest_size=16).hexdigest()
    return text.removesuffix(".0")
