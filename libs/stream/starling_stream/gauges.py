"""Adapter: what a worker tells Prometheus. The names and their meaning stand in `schemas/avro/telemetry.yaml`."""

from collections import Counter
from collections.abc import Sequence

from starling_common.metrics import Metrics
from starling_stream.task import Phase, Step


class Gauges:
    """Fed once a round, never once a record."""

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
        self._restored = metrics.counter("starling_stream_restored_records_total")

    def committed(self, steps: Sequence[Step], commit_seconds: float, round_seconds: float) -> None:
        """A round is done; `round_seconds` from its first record to the stored state."""
        self._commit_seconds.observe(commit_seconds)
        self._unit_seconds.observe(round_seconds)
        for topic, count in Counter(record.topic for step in steps for record in step.records).items():
            self._records.labels(topic).inc(count)
        for step in steps:
            if step.sealed is None:
                continue
            self._unit_records.observe(len(step.records))
            self._timers.inc(step.sealed.fired)
            self._time.labels(str(step.partition)).set(step.sealed.meta.stream_time_ms)
            for topic, count in Counter(output.topic for output in step.sealed.outputs).items():
                self._outputs.labels(topic).inc(count)
            for code, count in Counter(refusal.code for refusal in step.sealed.refusals).items():
                self._refused.labels(code).inc(count)

    def aborted(self, reason: str) -> None:
        """A transaction was given up."""
        self._aborts.labels(reason).inc()

    def phase(self, partition: int, phase: Phase) -> None:
        """A task came into a phase."""
        for one in Phase:
            self._state.labels(str(partition), one.value).set(1 if one is phase else 0)

    def restored(self, partition: int, seconds: float, records: int) -> None:
        """A task is ready."""
        self._restore_seconds.labels(str(partition)).set(seconds)
        self._restored.inc(records)
