"""Adapter: the segmenter's own metrics."""

from functools import cache

from prometheus_client import Counter

from starling_common.metrics import Metrics


class Counts:
    """Counts what units of work announce; a unit that is repeated after a failure is counted again."""

    def __init__(self, metrics: Metrics) -> None:
        """Registers the metrics, at zero."""
        self._changes = metrics.counter("starling_segmenter_changes_total")
        self._segments = metrics.gauge("starling_segmenter_segments")
        self._refused = metrics.counter("starling_segmenter_definitions_refused_total")
        # Finding a labelled counter takes longer than counting; there are a dozen pairs at most.
        self._changes_of = cache(self._changes.labels)

    def changed(self, status: str, cause: str) -> None:
        """One membership change."""
        child: Counter = self._changes_of(status, cause)
        child.inc()

    def segments(self, count: int) -> None:
        """How many segments are in force."""
        self._segments.set(count)

    def definition_refused(self, code: str) -> None:
        """A definition record was not taken over."""
        self._refused.labels(code).inc()
