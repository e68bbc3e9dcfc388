"""Adapter: the metrics of a worker. `schemas/avro/telemetry.yaml` declares their names and meaning."""

from collections import Counter
from collections.abc import Mapping, Sequence

from starling_common.telemetry.metrics import Metrics
from starling_stream.fold.task import Step
from starling_stream.model.phase import Phase


class Gauges:
    """Updated once a batch, never once a record."""

    def __init__(self, metrics: Metrics) -> None:
        self._records = metrics.counter("starling_stream_records_total")
        self._outputs = metrics.counter("starling_stream_outputs_total")
        self._refused = metrics.counter("starling_stream_refused_total")
        self._unit_records = metrics.histogram("starling_stream_unit_records")
        self._unit_seconds = metrics.histogram("starling_stream_unit_seconds")
        self._commit_seconds = metrics.histogram("starling_stream_commit_seconds")
        self._aborts = metrics.counter("starling_stream_aborts_total")
        self._timers = metrics.counter("starling_stream_timers_fired_total")
        self._time = metrics.gauge("starling_stream_time_ms")
        self._state = metrics.gauge("starling_stream_task_state")
        self._restore_seconds = metrics.gauge("starling_stream_restore_seconds")
        self._restore_phases = metrics.gauge("starling_stream_restore_phase_seconds")
        self._restored = metrics.counter("starling_stream_restored_records_total")
        self._restores = metrics.counter("starling_stream_restores_total")
        self._late = metrics.histogram("starling_stream_timer_late_seconds")
        self._lag = metrics.gauge("starling_stream_lag_records")
        self._cache_reads = metrics.counter("starling_stream_cache_reads_total")
        self._standby_lag = metrics.gauge("starling_stream_standby_lag_records")
        self._source_behind = metrics.gauge("starling_stream_source_behind_seconds")
        self._lags: set[tuple[str, str]] = set()
        self._sources: set[str] = set()
        self._standbys: set[str] = set()
        self._last_cache_reads = (0, 0)

    def committed(self, steps: Sequence[Step], commit_seconds: float, batch_seconds: float) -> None:
        """Count a committed batch; `batch_seconds` from its first record to the stored state."""
        self._commit_seconds.observe(commit_seconds)
        self._unit_seconds.observe(batch_seconds)
        for topic, count in Counter(record.topic for step in steps for record in step.records).items():
            self._records.labels(topic).inc(count)
        for step in steps:
            if step.sealed is None:
                continue
            self._unit_records.observe(len(step.records))
            self._timers.inc(step.sealed.fired)
            if step.sealed.fired:
                self._late.observe(step.sealed.late_ms / 1000)
            self._time.labels(str(step.partition)).set(step.sealed.meta.stream_time_ms)
            for topic, count in Counter(output.topic for output in step.sealed.outputs).items():
                self._outputs.labels(topic).inc(count)
            for code, count in Counter(refusal.code for refusal in step.sealed.refusals).items():
                self._refused.labels(code).inc(count)

    def aborted(self, reason: str) -> None:
        """Count an aborted transaction."""
        self._aborts.labels(reason).inc()

    def phase(self, partition: int, phase: Phase) -> None:
        """Set the phase of a task."""
        for one in Phase:
            self._state.labels(str(partition), one.value).set(1 if one is phase else 0)

    def restored(self, partition: int, seconds: Mapping[str, float], records: int, base: str) -> None:
        """Count a restore; `base` names the state before the replay, `seconds` go by phase."""
        self._restore_seconds.labels(str(partition)).set(sum(seconds.values()))
        for phase, took in seconds.items():
            self._restore_phases.labels(str(partition), phase).set(took)
        self._restored.inc(records)
        self._restores.labels(base).inc()

    def sampled(self, lags: Mapping[tuple[str, int], int], cache_reads: tuple[int, int]) -> None:
        """Set the values sampled every few seconds. `lags`: (topic, partition) -> waiting records; other partitions are removed.

        `cache_reads`: hits and misses of the block cache since the start of the process.
        """
        present = {(topic, str(partition)): lag for (topic, partition), lag in lags.items()}
        for gone in self._lags - present.keys():
            self._lag.remove(*gone)
        for labels, lag in present.items():
            self._lag.labels(*labels).set(lag)
        self._lags = set(present)
        for found, now, before in zip(("hit", "miss"), cache_reads, self._last_cache_reads, strict=True):
            self._cache_reads.labels(found).inc(now - before)
        self._last_cache_reads = cache_reads

    def sources(self, behind_seconds: Mapping[str, float]) -> None:
        """Set for each live source how far its watermark is behind the wall clock."""
        for gone in self._sources - behind_seconds.keys():
            self._source_behind.remove(gone)
        for source, seconds in behind_seconds.items():
            self._source_behind.labels(source).set(seconds)
        self._sources = set(behind_seconds)

    def standbys(self, lags: Mapping[int, int]) -> None:
        """Set partition -> changelog records that the standby copy lacks. Called by the thread of the standby copies."""
        present = {str(partition): lag for partition, lag in lags.items()}
        for gone in self._standbys - present.keys():
            self._standby_lag.remove(gone)
        for partition, lag in present.items():
            self._standby_lag.labels(partition).set(lag)
        self._standbys = set(present)


class BackingStoreGauges:
    """The metrics of the backing store. Safe for use by several threads."""

    def __init__(self, metrics: Metrics) -> None:
        self._age = metrics.gauge("starling_stream_flush_age_seconds")
        self._away = metrics.gauge("starling_stream_backing_store_unavailable")
        self._unflushed = metrics.gauge("starling_stream_unflushed_bytes")
        self._lag = metrics.gauge("starling_stream_flushed_offset_lag")
        self._written = metrics.counter("starling_stream_flushed_rows_total")
        self._read = metrics.counter("starling_stream_lazy_reads_total")
        self._loaded = metrics.gauge("starling_stream_loaded_ratio")
        self._bound = metrics.gauge("starling_stream_unflushed_bound_bytes")
        self._lags: set[str] = set()

    def bounded(self, unflushed_bytes: int) -> None:
        """Set the limit of unflushed bytes, above which the worker slows down."""
        self._bound.set(unflushed_bytes)

    def flushed(self, well: bool, age_seconds: float, unflushed_bytes: int, lags: Mapping[int, int]) -> None:
        """Set the values after a flush; `lags`: partition -> changelog offsets after its flushed offset."""
        self._away.set(0 if well else 1)
        self._age.set(age_seconds)
        self._unflushed.set(unflushed_bytes)
        for partition, lag in lags.items():
            self._lag.labels(str(partition)).set(lag)
        for gone in self._lags - {str(partition) for partition in lags}:  # another worker reports them now
            self._lag.remove(gone)
        self._lags = {str(partition) for partition in lags}

    def wrote(self, rows: int) -> None:
        """Count rows written to the backing store."""
        self._written.inc(rows)

    def read(self, local: int, found: int, absent: int) -> None:
        """Count reads of keys in unloaded buckets: loaded before, found in the backing store, or without a state."""
        self._read.labels("local").inc(local)
        self._read.labels("backing_store").inc(found)
        self._read.labels("absent").inc(absent)

    def loaded(self, partition: int, ratio: float) -> None:
        """Set the fraction of the partition's buckets that is loaded; 1 when all are."""
        self._loaded.labels(str(partition)).set(ratio)
