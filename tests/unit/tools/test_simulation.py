"""The simulation: nothing is lost or reordered, queues have their analytic mean, and measured runs are reproduced."""

import json
import math
import random
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import simpy

from starling_common.partitioning import partition_of
from tools.capacity_guide import PAGE
from tools.simulation.charts import Panel, chart
from tools.simulation.guide import filled
from tools.simulation.keys import partition_shares, top_share
from tools.simulation.measures import Freshness, drained_at, weighted
from tools.simulation.model import Broker, Chunk, Context, Machine, Service, Stage, Steps, Topic, assignment
from tools.simulation.parameters import large_plan, services
from tools.simulation.pipeline import Layout, Load, Pipeline
from tools.simulation.run import CHARTS, IMAGES, RESULT, image, parameters, text, validation

SERVICE = Service(record_seconds=0.0005, transaction=lambda: 0.02)


class Bench:
    """One stage with two workers, four partitions and a regular load of ten records in 10 ms."""

    def __init__(self, service: Service = SERVICE, machine: int | None = None) -> None:
        self.env = simpy.Environment()
        self.broker = Broker(self.env)
        self.source = Topic(4)
        self.out: dict[int, list[tuple[float, Chunk]]] = defaultdict(list)
        around = Context(self.env, self.broker, Machine(self.env, machine) if machine else None)
        self.stage = Stage("stage", around, service, self.source, self._sink)
        self.stage.start(2)
        self.sent = 0

    def _sink(self, partition: int, chunks: Sequence[Chunk]) -> None:
        self.out[partition] += [(self.env.now, chunk) for chunk in chunks]

    def load(self, seconds: float) -> None:
        def arrive() -> Steps:
            for number in range(int(seconds * 100)):
                yield self.env.timeout(0.01)
                self.source.append(number % 4, Chunk(self.env.now, 10, number // 4))
                self.sent += 10

        self.env.process(arrive())

    def at(self, seconds: float, act: Callable[[], Steps]) -> None:
        def later() -> Steps:
            yield self.env.timeout(seconds)
            yield from act()

        self.env.process(later())

    @property
    def received(self) -> int:
        return sum(chunk.events for found in self.out.values() for _, chunk in found)

    def check(self) -> None:
        """Every chunk came out once, and in the order of its partition."""
        assert self.received == self.sent
        assert self.source.backlog == 0
        for found in self.out.values():
            assert [chunk.number for _, chunk in found] == list(range(len(found)))


def test_every_event_comes_out_once_and_in_order() -> None:
    bench = Bench()
    bench.load(10)
    bench.env.run(12)
    assert bench.sent == 10_000
    bench.check()


@pytest.mark.parametrize("at", [1.0, 1.003, 1.011, 1.019, 1.024, 1.03])
def test_nothing_is_lost_repeated_or_reordered_when_a_worker_dies(at: float) -> None:
    bench = Bench(replace(SERVICE, record_seconds=0.001))
    bench.load(10)
    bench.at(at, lambda: bench.stage.lose(bench.stage.workers[0], session_seconds=2, rebalance_seconds=0.5, restore_seconds=1))
    bench.env.run(60)
    bench.check()
    orphaned = [(time, chunk) for partition in (0, 1) for time, chunk in bench.out[partition]]
    assert not [time for time, _ in orphaned if at < time < at + 3.5]
    assert {worker.alive for worker in bench.stage.workers} == {True, False}


def test_all_workers_stop_for_a_rebalance() -> None:
    bench = Bench()
    bench.load(10)
    bench.at(1, lambda: bench.stage.lose(bench.stage.workers[0], session_seconds=2, rebalance_seconds=1, restore_seconds=0))
    bench.env.run(20)
    others = [time for partition in (2, 3) for time, _ in bench.out[partition]]
    assert not [time for time in others if 3.2 < time < 4]
    assert [time for time in others if 2 < time < 3]


@pytest.mark.parametrize("at", [1.0, 1.006, 1.013, 1.02])
def test_a_restart_keeps_the_partitions_and_stops_no_other_worker(at: float) -> None:
    bench = Bench(replace(SERVICE, record_seconds=0.001))
    bench.load(10)
    bench.at(at, lambda: bench.stage.restart_worker(bench.stage.workers[0], away_seconds=3))
    bench.env.run(60)
    bench.check()
    own, others = ([time for partition in pair for time, _ in bench.out[partition]] for pair in ((0, 1), (2, 3)))
    assert not [time for time in own if at + 0.2 < time < at + 3]
    assert max(np.diff(sorted(others))) < 0.2
    assert all(worker.alive for worker in bench.stage.workers)


def test_nothing_is_committed_while_the_brokers_pause() -> None:
    bench = Bench()
    bench.load(10)

    def pause() -> Steps:
        bench.broker.pause(2)
        yield bench.env.timeout(0)

    bench.at(3, pause)
    bench.env.run(20)
    bench.check()
    times = [time for found in bench.out.values() for time, _ in found]
    assert not [time for time in times if 3 < time < 5]
    assert [time for time in times if 5 <= time < 5.1]


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_the_mean_wait_of_a_queue_is_that_of_an_m_d_1(load: float) -> None:
    env, service, dice = simpy.Environment(), 0.01, random.Random(5)
    source, waits = Topic(1), Freshness()
    one = Service(record_seconds=service, transaction=lambda: 0.0, batch_records=1, pipelined=False)
    stage = Stage("queue", Context(env, Broker(env)), one, source, lambda _, chunks: waits.add(env.now, chunks))
    stage.start(1)
    events = 30_000

    def arrive() -> Steps:
        for number in range(events):
            yield env.timeout(dice.expovariate(load / service))
            source.append(0, Chunk(env.now, 1, number))

    env.process(arrive())
    env.run(events * service / load * 1.1)
    assert waits.events == events
    # Pollaczek and Khinchine: the mean wait of a queue with constant service times.
    expected = load * service / (2 * (1 - load))
    assert sum(waits.latency) / events - service == pytest.approx(expected, rel=0.08)


def test_the_utilisation_is_the_offered_load() -> None:
    bench = Bench()
    bench.load(10)
    bench.env.run(11)
    assert sum(bench.stage.busy) == pytest.approx(bench.sent * SERVICE.record_seconds)
    assert sum(bench.stage.busy[2:9]) / 14 == pytest.approx(1_000 * SERVICE.record_seconds / 2, rel=0.05)
    assert max(bench.stage.busy) <= 2


def test_processes_of_one_machine_share_its_cores() -> None:
    alone, shared = Bench(replace(SERVICE, record_seconds=0.001)), Bench(replace(SERVICE, record_seconds=0.001), machine=1)
    for bench in (alone, shared):
        bench.load(10)
        bench.env.run(8)
    assert alone.received > 0.9 * alone.sent
    shared.env.run(60)
    shared.check()
    assert max(shared.stage.busy) <= 1 + 1e-9


def test_a_batch_has_at_most_its_records_and_starves_no_partition() -> None:
    bench = Bench(replace(SERVICE, batch_records=100, transaction=lambda: 1.0))
    for number in range(100):
        bench.source.append(0, Chunk(0, 10, number))
    bench.source.append(1, Chunk(0, 10, 0))
    bench.sent = 1_010
    bench.env.run(1.5)
    assert 0 < bench.received <= 100
    assert bench.out[1]
    bench.env.run(60)
    bench.check()


def test_shares_follow_the_platforms_partitioner() -> None:
    shares = partition_shares(100, 1.0, 8)
    exact = Counter[int]()
    for rank in range(1, 101):
        exact[partition_of(b"default/user-%d" % rank, 8)] += 1 / rank  # type: ignore[assignment]
    total = sum(exact.values())
    assert shares == pytest.approx([exact[partition] / total for partition in range(8)])


@pytest.mark.parametrize("exponent", [0.0, 0.5, 0.8, 1.0, 1.2])
def test_many_users_are_summed_as_exactly_as_few(exponent: float) -> None:
    users = 300_000
    total = math.fsum(rank**-exponent for rank in range(1, users + 1))
    assert top_share(users, exponent) == pytest.approx(1 / total, rel=1e-9)
    assert sum(partition_shares(users, exponent, 64)) == pytest.approx(1)


def test_workers_get_neighbouring_partitions_evenly() -> None:
    bounds = assignment(10, 3)
    assert bounds == [(0, 3), (3, 6), (6, 10)]


def test_percentiles_are_weighted_by_events() -> None:
    values, counts = np.array([1.0, 2.0, 3.0]), np.array([98, 1, 1])
    assert weighted(values, counts, (0.5, 0.98, 0.99, 1.0)) == [1.0, 1.0, 2.0, 3.0]
    assert weighted(values[:0], counts[:0], (0.5,)) == [0.0]


def test_a_backlog_is_drained_when_it_stays_low() -> None:
    times = [float(time) for time in range(10)]
    assert drained_at(times, [0, 1, 4, 4, 9, 9, 3, 9, 3, 2], fault_at=4, repaired_at=5) == 8
    assert drained_at(times, [0, 1, 4, 4, 9, 9, 9, 9, 9, 9], fault_at=4, repaired_at=5) is None


def small(cores: int | None = None) -> Layout:
    micros = {"normalizer": 100.0, "segmenter": 100.0, "projector": 50.0}
    return Layout({"edge": 1, "normalizer": 2, "segmenter": 2, "projector": 1}, services(micros), 20e-6, 0.01, 0.0, cores)


def test_the_pipeline_conserves_events_through_every_fault() -> None:
    run = Pipeline(small(), Load(5_000, [0.25] * 4, 20))

    def faults() -> Steps:
        segmenters, normalizers = run.stages["segmenter"], run.stages["normalizer"]
        yield run.env.timeout(2)
        run.broker.pause(1)
        yield from segmenters.restart_worker(segmenters.workers[0], 2)
        yield from normalizers.lose(normalizers.workers[1], 3, 1, 1)

    run.env.process(faults())
    run.run()
    assert run.sent > 90_000
    assert run.feed.events == run.read_model.events == run.sent
    assert not any(stage.source.backlog for stage in run.stages.values())
    assert min(run.feed.latency) > 0


def test_the_pipeline_processes_what_its_slowest_stage_can() -> None:
    run = Pipeline(small(), Load(40_000, [0.25] * 4, 30, tick=0.1))
    run.run(20)
    normalizer = run.stages["normalizer"]
    # The batches in progress are counted when they end.
    assert sum(normalizer.busy[5:18]) / 26 == pytest.approx(1, rel=0.02)
    assert (run.sent - normalizer.source.backlog) / 20 == pytest.approx(20_000, rel=0.08)


@pytest.fixture(scope="module")
def validated() -> dict[str, Any]:
    return validation()


def test_measured_runs_are_reproduced(validated: dict[str, Any]) -> None:
    found = validated
    rates = found["events_per_second"]
    assert abs(rates["20-segments-1-switches"]["ratio"] - 1) <= 0.15
    assert abs(rates["20-segments-0.2-switches"]["ratio"] - 1) <= 0.15
    for name in ("latency_of_the_platform_ms", "latency_of_a_segmenter_at_half_of_its_rate_ms"):
        assert 0.5 <= found[name]["p50"]["ratio"] <= 2
        assert 0.1 <= found[name]["p99"]["ratio"] <= 10


def test_the_result_is_of_the_plan_and_the_measurements_of_the_repository(validated: dict[str, Any]) -> None:
    found = json.loads(RESULT.read_text())
    stale = "benchmarks/results/simulation.json is out of date: run `make simulate`"
    assert found["parameters"] == json.loads(json.dumps(parameters(large_plan()))), stale
    assert found["validation"] == validated, stale


@pytest.mark.parametrize("name", CHARTS)
def test_the_charts_show_the_result(name: str) -> None:
    found = json.loads(RESULT.read_text())[name]
    path = IMAGES / f"capacity-{name.replace('_', '-')}.svg"
    assert path.read_text() == image(CHARTS[name], found), "run `make simulate`"


def test_the_guide_has_the_figures_of_the_result() -> None:
    page, found = PAGE.read_text(), json.loads(RESULT.read_text())
    assert page.count("<!-- simulated: ") == 4
    assert filled(page, found) == page, "run `make simulate`"
    assert filled(page.replace(f"| {found['steady']['utilisation']['segmenter']:.0%} |", "| 1% |"), found) == page
    assert RESULT.read_text() == text(found)


def test_what_the_guide_states_about_the_figures_holds() -> None:
    found = json.loads(RESULT.read_text())
    lost, upgrade, pause = (found[name] for name in ("worker_lost", "rolling_upgrade", "broker_pause"))
    assert 68_000 < max(lost["series"]["p99_ms"]) < 70_000
    assert found["parameters"]["workers"]["segmenter"] == 43
    assert upgrade["during"]["feed_p50_ms"] == pytest.approx(upgrade["before"]["feed_p50_ms"], rel=0.05)
    assert upgrade["most_backlog_records"] < lost["most_backlog_records"] / 2
    assert 545 < upgrade["repaired_at_seconds"] - upgrade["fault_at_seconds"] < 555
    busy = pause["utilisation_after_repair"]
    assert set(sorted(busy, key=busy.__getitem__)[-2:]) == {"normalizer", "segmenter"}
    overloaded = {
        one["exponent"]: one["hottest_worker_events_per_second"] > one["worker_capacity_events_per_second"] for one in found["skew"]
    }
    assert overloaded == {0.0: False, 0.7: False, 0.8: False, 0.9: True, 1.0: True}


def test_a_chart_scales_its_lines_and_escapes_texts() -> None:
    drawn = ET.fromstring(chart("a < b", [Panel("ms", 10, {"p50": [0, 5, 10], "p99": [10, 10, 10]})], {"fault": 10}))  # noqa: S314
    lines = [one.attrib["points"].split() for one in drawn.iter("{http://www.w3.org/2000/svg}polyline")]
    heights = [[float(point.partition(",")[2]) for point in line] for line in lines]
    assert heights[0][0] - heights[0][1] == pytest.approx(heights[0][1] - heights[0][2])
    assert heights[0][2] == heights[1][0] == heights[1][2]
    assert "a < b" in "".join(drawn.itertext())
