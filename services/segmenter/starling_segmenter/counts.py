"""Adapter: the segmenter's own metrics."""

from collections import Counter

from starling_common.telemetry.metrics import Metrics


class Counts:
    """Counts the membership changes of units of work; a unit repeated after a failure is counted again."""

    def __init__(self, metrics: Metrics) -> None:
        """Register the metrics, at zero."""
        self._changes = metrics.counter("starling_segmenter_changes_total")
        self._segments = metrics.gauge("starling_segmenter_segments")
        self._refused = metrics.counter("starling_segmenter_definitions_refused_total")
        self.changes: Counter[tuple[str, str]] = Counter()
        """(status, cause) -> changes since the last `publish`; a labelled metric for each change costs ten times as much."""

    def publish(self) -> None:
        """Add the changes to the metric, once for each unit of work."""
        for (status, cause), count in self.changes.items():
            self._changes.labels(status, cause).inc(count)
        self.changes.clear()

    def segments(self, count: int) -> None:
        """Set the number of segments in force."""
        self._segments.set(count)

    def definition_refused(self, code: str) -> None:
        """Count a refused definition."""
        self._refused.labels(code).inc()
