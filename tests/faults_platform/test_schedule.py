import random
from collections import Counter
from itertools import islice

from tests.faults_platform.schedule import KINDS, PAIRS, Fault, Wave, first_faults, one_round, schedule

PARTS = ("kafka", "cassandra", "registry", "ingest", "normalizer-0", "segmenter-0", "projector-0", "api", "delivery-0", "spark")


def a_round(seed: int = 7) -> list[Wave]:
    return one_round(PARTS, random.Random(seed))


def test_in_each_round_every_part_and_all_at_once_have_a_fault_of_every_kind_as_a_host() -> None:
    hosts = Counter(wave.host for wave in a_round())
    for parts in (*((part,) for part in PARTS), PARTS):
        assert [hosts[Fault(kind, parts)] for kind in KINDS] == [1] * len(KINDS)
    assert sum(count for host, count in hosts.items() if len(host.parts) == 2) == len(PAIRS)


def test_a_round_of_the_whole_platform_has_more_than_150_faults() -> None:
    for seed in range(20):
        assert sum(len(wave.faults) for wave in a_round(seed)) > 150


def test_the_faults_of_a_wave_hit_different_parts_and_long_ones_are_hosts() -> None:
    for wave in islice(schedule(PARTS, 7), 200):
        hit = [part for fault in wave.faults for part in fault.parts]
        assert len(hit) == len(set(hit))
        assert {fault.kind for fault in wave.guests} <= {"kill", "slow"}
        assert len({part for fault in wave.guests for part in fault.parts} & {"kafka", "cassandra", "spark"}) <= 1


def test_a_number_of_faults_ends_within_a_wave() -> None:
    for count in range(1, 30):
        chosen = first_faults(schedule(PARTS, 7), count)
        assert sum(len(wave.faults) for wave in chosen) == count
    assert [wave.host for wave in chosen] == [wave.host for wave in islice(schedule(PARTS, 7), len(chosen))]


def test_the_seed_decides() -> None:
    assert a_round() == a_round()
    assert a_round() != a_round(seed=8)
