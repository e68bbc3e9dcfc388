"""Edge: the metrics of one target."""

from starling_audience.definitions import AudienceTarget
from starling_audience.stores.outbox import Outcomes
from starling_common.telemetry.metrics import Metrics


class Meters:
    """The counters and gauges of a follower, with the labels of its target."""

    def __init__(self, metrics: Metrics, target: AudienceTarget) -> None:
        self._labels = labels = (target.workspace, target.key)
        self._changes = metrics.counter("starling_audience_changes_total")
        self.lag = metrics.gauge("starling_audience_lag_records").labels(*labels)
        self.paused = metrics.gauge("starling_audience_paused").labels(*labels)
        self.first_syncs = metrics.gauge("starling_audience_first_sync_partitions").labels(*labels)
        self._batches = metrics.counter("starling_audience_batches_total")

    def ended(self) -> None:
        """Show that nothing is followed any more."""
        self.paused.set(0)
        self.lag.set(0)
        self.first_syncs.set(0)

    def batch(self, result: str) -> None:
        """Count a batch, by what became of it."""
        self._batches.labels(*self._labels, result).inc()

    def count(self, outcomes: Outcomes) -> None:
        """Count the changes of a batch, by what became of them."""
        counts = {
            "sent": sum(change.is_member for change in outcomes.taken),
            "removed": sum(not change.is_member and change.reason is None for change in outcomes.taken),
            "no_consent": sum(change.reason is not None for change in outcomes.taken),
            "rejected": len(outcomes.rejected),
            "no_identifier": len(outcomes.no_identifier),
            "superseded": len(outcomes.superseded),
            "unreadable": len(outcomes.unreadable),
        }
        for outcome, count in counts.items():
            self._changes.labels(*self._labels, outcome).inc(count)
