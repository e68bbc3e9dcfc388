"""Adapter: the Prometheus metrics of the ingest service.

The counts are plain integers, updated by the event loop's thread and converted to samples when `/metrics` is scraped. The client
library's counters and histograms take a lock for each update, which is a sixth of the time that a small request needs.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from starling_common.telemetry.metrics import telemetry
from starling_ingest.requests.accept import ParsedBody

_REQUESTS: Final = "starling_ingest_requests_total"
_ITEMS: Final = "starling_ingest_items_total"
_SECONDS: Final = "starling_ingest_request_seconds"
_QUEUE: Final = "starling_ingest_queue_records"
_LIMITED: Final = "starling_ingest_rate_limited_total"


class Counts(Collector):
    """Metrics of the ingest service. Their help texts, labels and buckets are in `telemetry.yaml`."""

    def __init__(self, registry: CollectorRegistry, queue_records: Callable[[], int]) -> None:
        """Register the collector. Raises: KeyError if the catalogue lacks one of the metrics."""
        self._registry = registry
        self._queue_records = queue_records
        self._requests: dict[tuple[str, str], int] = {}
        self._items: dict[tuple[str, str], int] = {}
        self._limited: dict[tuple[str], int] = {}
        self._bounds: tuple[float, ...] = tuple(telemetry()[_SECONDS]["buckets"])
        self._seconds: dict[str, list[int]] = {}
        self._seconds_sum: dict[str, float] = {}
        registry.register(self)

    def answered(self, path: str, status: str, seconds: float | None) -> None:
        """Count one request. `seconds` is the time from the last byte of its body to the response; None if no body was read."""
        key = (path, status)
        self._requests[key] = self._requests.get(key, 0) + 1
        if seconds is None:
            return
        tally = self._seconds.get(path)
        if tally is None:
            tally = self._seconds[path] = [0] * (len(self._bounds) + 1)
        tally[bisect_left(self._bounds, seconds)] += 1
        self._seconds_sum[path] = self._seconds_sum.get(path, 0.0) + seconds

    def limited(self, limit: str) -> None:
        """Count one request with a 429. `limit`: the bucket that was empty, or `queue`."""
        self._limited[limit,] = self._limited.get((limit,), 0) + 1

    def acknowledged(self, parsed: ParsedBody) -> None:
        """Count the items of one request, all of them acknowledged."""
        for item in parsed.items:
            key = (item.kind, "accepted")
            self._items[key] = self._items.get(key, 0) + 1
        if parsed.rejections:
            key = ("unknown", "rejected")
            self._items[key] = self._items.get(key, 0) + len(parsed.rejections)

    def exposition(self) -> tuple[str, bytes]:
        """Return the content type and the body of `/metrics`."""
        return CONTENT_TYPE_LATEST, generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield samples of all counts."""
        yield _counter(_REQUESTS, self._requests.items())
        yield _counter(_ITEMS, self._items.items())
        yield _counter(_LIMITED, self._limited.items())
        yield GaugeMetricFamily(_QUEUE, telemetry()[_QUEUE]["help"], value=self._queue_records())
        family = HistogramMetricFamily(_SECONDS, telemetry()[_SECONDS]["help"], labels=telemetry()[_SECONDS]["labels"])
        for path, tally in self._seconds.items():
            names = [*map(str, self._bounds), "+Inf"]
            family.add_metric([path], list(zip(names, accumulate(tally), strict=True)), self._seconds_sum[path])
        yield family


def _counter(name: str, tallies: Iterable[tuple[tuple[str, ...], int]]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, telemetry()[name]["help"], labels=telemetry()[name]["labels"])
    for labels, count in tallies:
        family.add_metric(list(labels), count)
    return family
