"""The metrics of a worker: only for its own partitions, each value from its source."""

from pathlib import Path

from prometheus_client import CollectorRegistry

from starling_common.telemetry.metrics import Metrics
from starling_stream.fold.task import Step
from starling_stream.state.local_store import TaskStore, store_memory
from starling_stream.state.metrics import BackingStoreGauges, Gauges
from starling_stream.testing import MemoryTask
from tests.unit.stream.counting import HOUR_MS, counting, event


def _reported(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    """Label values in alphabetical order of the labels -> value."""
    found = [sample for family in metrics.registry.collect() for sample in family.samples if sample.name == name]
    return {tuple(sample.labels[label] for label in sorted(sample.labels)): sample.value for sample in found}


def test_lag_is_reported_for_assigned_partitions_only() -> None:
    metrics = Metrics(CollectorRegistry())
    gauges = Gauges(metrics)
    gauges.sampled({("a", 0): 7, ("a", 1): 3}, (0, 0))
    gauges.sampled({("a", 1): 2, ("b", 1): 5}, (0, 0))
    assert _reported(metrics, "starling_stream_lag_records") == {("1", "a"): 2, ("1", "b"): 5}


def test_the_flush_lag_of_a_partition_that_moved_away_is_removed() -> None:
    metrics = Metrics(CollectorRegistry())
    gauges = BackingStoreGauges(metrics)
    gauges.flushed(True, 0.1, 10, {0: 4, 1: 9})
    gauges.flushed(True, 0.1, 10, {1: 8})
    assert _reported(metrics, "starling_stream_flushed_offset_lag") == {("1",): 8}


def test_cache_reads_are_counted_once(tmp_path: Path) -> None:
    metrics, memory = Metrics(CollectorRegistry()), store_memory(8 * 1024 * 1024, 8 * 1024 * 1024)
    gauges, store = Gauges(metrics), TaskStore(tmp_path / "0", memory)
    store.adopt({b"k%d" % number: b"v" * 200 for number in range(1000)})
    store.close()
    store = TaskStore(tmp_path / "0", memory)
    store.rows([b"k1"])
    missed = memory.cache_reads()[1]
    assert missed > 0
    store.rows([b"k1"])
    hits, misses = memory.cache_reads()
    assert hits > 0
    assert misses == missed
    gauges.sampled({}, (hits, misses))
    gauges.sampled({}, (hits, misses))
    assert _reported(metrics, "starling_stream_cache_reads_total") == {("hit",): hits, ("miss",): misses}
    store.close()


def test_the_delay_of_a_timer_is_the_difference_to_stream_time() -> None:
    metrics = Metrics(CollectorRegistry())
    task, gauges = MemoryTask(counting()), Gauges(metrics)
    task.feed("in", b"default/u1", event(1, 0))
    sealed = task._fold.step((), task._rows, HOUR_MS + 4_000)
    gauges.committed([Step(0, sealed, (), {})], 0.01, 0.02)
    assert _reported(metrics, "starling_stream_timer_late_seconds_sum") == {(): 4.0}
    assert _reported(metrics, "starling_stream_timer_late_seconds_count") == {(): 1.0}
    task._commit(sealed)
    quiet = task._fold.step((), task._rows, HOUR_MS + 5_000)
    gauges.committed([Step(0, quiet, (), {})], 0.01, 0.02)
    assert _reported(metrics, "starling_stream_timer_late_seconds_count") == {(): 1.0}
