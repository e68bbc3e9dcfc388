from itertools import islice

from tests.faults_platform.schedule import KINDS, PAIRS_A_ROUND, Fault, schedule

PARTS = ("kafka", "segmenter-0", "api")
ROUND = len(PARTS) + PAIRS_A_ROUND + 1


def first(rounds: int, seed: int = 7) -> list[Fault]:
    return list(islice(schedule(PARTS, seed), rounds * ROUND))


def test_each_round_has_every_part_pairs_and_everything_at_once() -> None:
    for number in range(3):
        sizes = [len(fault.parts) for fault in first(3)[number * ROUND : (number + 1) * ROUND]]
        assert (sizes.count(1), sizes.count(2), sizes.count(3)) == (len(PARTS), PAIRS_A_ROUND, 1)


def test_in_four_rounds_every_part_and_all_at_once_have_every_kind() -> None:
    faults = first(len(KINDS))
    for parts in ((part,) for part in PARTS):
        assert {fault.kind for fault in faults if fault.parts == parts} == set(KINDS)
    assert {fault.kind for fault in faults if fault.parts == PARTS} == set(KINDS)


def test_the_seed_decides() -> None:
    assert first(2) == first(2)
    assert first(2) != first(2, seed=8)
