"""Adapter: a query's progress, as Spark reports it -> the metrics of every streaming job."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from starling_common.telemetry.metrics import Metrics


class QueryMetrics:
    """The metrics of one query. Rates are in rows a second, times in seconds."""

    def __init__(self, metrics: Metrics, query: str) -> None:
        self.count_rows: Callable[[], int] | None = None
        """Returns the rows of the state. None: those that Spark counts."""
        self._metrics = metrics
        self._query = query
        self._batch: int | None = None

    def record(self, progress: str) -> None:
        """Set the metrics from a progress (Spark's JSON). A repeated progress is counted once."""
        reported: dict[str, Any] = json.loads(progress)
        self._gauge("input_rows_per_second", reported.get("inputRowsPerSecond"))
        self._gauge("processed_rows_per_second", reported.get("processedRowsPerSecond"))
        states = reported.get("stateOperators", [])
        rows = sum(state["numRowsTotal"] for state in states) if self.count_rows is None else self.count_rows()
        self._gauge("state_rows", rows)
        self._gauge("state_bytes", sum(state["memoryUsedBytes"] for state in states))
        self._gauge("watermark_lag_seconds", watermark_lag_seconds(reported))
        if reported["batchId"] != self._batch and reported["numInputRows"] > 0:
            seconds = reported["durationMs"].get("triggerExecution", 0) / 1000
            self._metrics.histogram("starling_spark_query_batch_seconds").labels(self._query).observe(seconds)
            dropped = sum(state.get("numRowsDroppedByWatermark", 0) for state in states)
            self._metrics.counter("starling_spark_query_too_late_rows_total").labels(self._query).inc(dropped)
        self._batch = reported["batchId"]

    def _gauge(self, name: str, value: float | None) -> None:
        if value is not None:
            self._metrics.gauge(f"starling_spark_query_{name}").labels(self._query).set(value)


def count_refused(metrics: Metrics, query: str, refused: Mapping[str, int]) -> None:
    """Count refused records. `refused`: by code."""
    for code, records in refused.items():
        metrics.counter("starling_spark_query_refused_total").labels(query, code).inc(records)


def watermark_lag_seconds(progress: dict[str, Any]) -> float | None:
    """Return the seconds between the watermark and the newest event of the batch; None without a watermark or without events."""
    event_time = progress.get("eventTime", {})
    if "watermark" not in event_time or "max" not in event_time:
        return None
    newest, watermark = (datetime.fromisoformat(event_time[name]).astimezone(UTC) for name in ("max", "watermark"))
    return (newest - watermark).total_seconds()
