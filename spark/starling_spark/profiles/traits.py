"""Pure core: one user's computed traits: fold what happened, then say which values changed at an instant.

The accumulators are the segment language's own, so a value here is the value there.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

import msgspec

from starling_segments.accumulators import EXACT, Measured
from starling_segments.measures import MEASURES
from starling_segments.tree import Measure
from starling_spark.profiles.definitions import Trait
from starling_spark.profiles.matching import Payload

FORMAT: Final = 1
"""Of the bytes of `UserTraits`; part of the checkpoint's name, so that old bytes are never read as new ones."""

Value = int | float | None


class Kept(msgspec.Struct, array_like=True):
    """What is kept of one trait. `ahead`: [time, payload] of events later than stream time (possible with the wall clock).

    `told`: `value` was published. `due`: when the value can next change by itself.
    """

    accumulator: Measured | None
    ahead: list[tuple[int, float | str | bool]] = msgspec.field(default_factory=list)
    told: bool = False
    value: Value = None
    due: int | None = None


class UserTraits(msgspec.Struct, array_like=True):
    """One user's state. `kept` by the trait's index; `filed` is the start of the slot of the wheel where the user stands."""

    kept: dict[int, Kept] = msgspec.field(default_factory=dict)
    filed: int | None = None

    @property
    def due(self) -> int | None:
        """When a value can next change though nothing happens."""
        return min((kept.due for kept in self.kept.values() if kept.due is not None), default=None)


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(UserTraits)


def encode_user(user: UserTraits) -> bytes:
    """State to bytes."""
    return _ENCODER.encode(user)


def decode_user(data: bytes) -> UserTraits:
    """The inverse."""
    return _DECODER.decode(data)


def fold(user: UserTraits, trait: tuple[int, Trait], happened: tuple[int, Payload], now_ms: int) -> None:
    """Fold one match: `trait` with its index, `happened` as (event time, payload), at stream time `now_ms`.

    A late event counts where its own time puts it; one older than the window is dropped.
    """
    index, definition = trait
    time_ms, payload = happened
    kept = user.kept.get(index)
    if kept is None:
        kept = user.kept[index] = Kept(_new_accumulator(definition.measure))
    kept.due = now_ms  # whatever it was: it is to be looked at now
    if payload is None or definition.measure is None or kept.accumulator is None:
        return
    if time_ms > now_ms and definition.measure.within_ms is not None:
        kept.ahead.append((time_ms, payload))
    else:
        _add(kept.accumulator, definition.measure, (time_ms, payload), now_ms)


def _new_accumulator(measure: Measure | None) -> Measured | None:
    if measure is None:
        return None
    kind = MEASURES[measure.name]
    return kind.lifetime() if measure.within_ms is None else kind.windowed()


def _add(accumulator: Measured, measure: Measure, happened: tuple[int, Any], now_ms: int) -> None:
    time_ms, payload = happened
    if measure.within_ms is None:
        accumulator.add(time_ms, payload, 0)
        return
    # What has left is dropped first, so that it is not among the newest that are kept one by one.
    accumulator.forget(now_ms - measure.within_ms)
    if time_ms > now_ms - measure.within_ms:
        accumulator.add(time_ms, payload, measure.within_ms // EXACT)


def settle(user: UserTraits, traits: Sequence[Trait], now_ms: int) -> Iterator[tuple[int, Value]]:
    """(index of the trait, value at `now_ms`) of each value that differs from what was last told; they count as told.

    Only traits that are due are looked at. Afterwards `due` is later than `now_ms`, and a trait whose window is empty
    and said so is forgotten: a state holds what is inside windows, and lifetimes.
    """
    for index, kept in list(user.kept.items()):
        if kept.due is None or kept.due > now_ms:
            continue
        trait = traits[index]
        value, kept.due = _bring_to(kept, trait.measure, now_ms)
        is_news = not kept.told or value != kept.value
        # Whoever never had a value need not be told that there is none.
        if is_news and (kept.told or value is not None or trait.former):
            yield index, value
        kept.told, kept.value = True, value
        if kept.due is None and _says_nothing(trait.measure, value):
            del user.kept[index]


def _says_nothing(measure: Measure | None, value: Value) -> bool:
    return measure is None or (measure.within_ms is not None and value == MEASURES[measure.name].nothing)


def _bring_to(kept: Kept, measure: Measure | None, now_ms: int) -> tuple[Value, int | None]:
    """The value at `now_ms`, and when it can next change by itself."""
    if measure is None or kept.accumulator is None:
        return None, None
    for happened in [entry for entry in kept.ahead if entry[0] <= now_ms]:
        kept.ahead.remove(happened)
        _add(kept.accumulator, measure, happened, now_ms)
    if measure.within_ms is None:
        return cast("Value", kept.accumulator.value()), None
    kept.accumulator.forget(now_ms - measure.within_ms)
    value = cast("Value", kept.accumulator.value())  # the measures that can be computed give numbers
    departure = kept.accumulator.next_departure(None, lambda other, _: other == value, now_ms)
    turns = [time_ms for time_ms, _ in kept.ahead] + ([] if departure is None else [departure + measure.within_ms])
    return value, min(turns, default=None)
