"""The wheel of slots: it returns every due user, and has few slots."""

import random

from starling_spark.jobs.profiles.fold.wheel import Slot, reached, slot_for

YEAR_MS = 365 * 86_400_000


def test_a_slot_holds_the_instant_and_is_narrow_for_its_distance() -> None:
    chance = random.Random(5)
    for _ in range(2000):
        now_ms = chance.randrange(1 << 41)
        distance = 1 + chance.randrange(1 << chance.randrange(1, 38))
        slot = slot_for(now_ms + distance, now_ms)
        width = 1 << slot.exponent
        assert slot.start_ms <= now_ms + distance < slot.start_ms + width
        assert width <= max(1024, distance / 16)


def test_slots_stay_few_however_many_are_filed() -> None:
    chance = random.Random(6)
    slots = {slot_for(1_700_000_000_000 + chance.randrange(1, 3 * YEAR_MS), 1_700_000_000_000) for _ in range(20_000)}
    assert len(slots) < 1000


def test_slots_are_opened_when_stream_time_reaches_their_start() -> None:
    slots = {Slot(2048, 10), Slot(1024, 10), Slot(4096, 12)}
    assert reached(slots, 1023) == []
    assert reached(slots, 2048) == [Slot(1024, 10), Slot(2048, 10)]
