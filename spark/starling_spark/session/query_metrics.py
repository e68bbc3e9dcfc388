"""Adapter: what Spark says of a query's progress -> the metrics that every streaming job has."""

import json
from datetime import UTC, datetime
from typing import Any

from starling_common.metrics import Metrics


class QueryMetrics:
    """Of one query. Rates are rows a second, times seconds."""

    def __init__(self, metrics: Metrics, query: str) -> None:
        self._metrics = metrics
        self._query = query
        self._batch: int | None = None

    def tell(self, progress: str) -> None:
        """Take over one progress (Spark's JSON); the same one twice counts once."""
        told: dict[str, Any] = json.loads(progress)
        self._gauge("input_rows_per_second", told.get("inputRowsPerSecond"))
        self._gauge("processed_rows_per_second", told.get("processedRowsPerSecond"))
        states = told.get("stateOperators", [])
        self._gauge("state_rows", sum(state["numRowsTotal"] for state in states))
        self._gauge("state_bytes", sum(state["memoryUsedBytes"] for state in states))
        self._gauge("watermark_lag_seconds", watermark_lag_seconds(told))
        if told["batchId"] != self._batch and told["numInputRows"] > 0:
            seconds = told["durationMs"].get("triggerExecution", 0) / 1000
            self._metrics.histogram("starling_spark_query_batch_seconds").labels(self._query).observe(seconds)
            dropped = sum(state.get("numRowsDroppedByWatermark", 0) for state in states)
            self._metrics.counter("starling_spark_query_too_late_rows_total").labels(self._query).inc(dropped)
        self._batch = told["batchId"]

    def _gauge(self, name: str, value: float | None) -> None:
        if value is not None:
            self._metrics.gauge(f"starling_spark_query_{name}").labels(self._query).set(value)


def watermark_lag_seconds(progress: dict[str, Any]) -> float | None:
    """From the newest event of the batch back to the watermark; None where a query has no watermark, or saw no event."""
    event_time = progress.get("eventTime", {})
    if "watermark" not in event_time or "max" not in event_time:
        return None
    newest, watermark = (datetime.fromisoformat(event_time[name]).astimezone(UTC) for name in ("max", "watermark"))
    return (newest - watermark).total_seconds()
