"""Adapter: Prometheus metrics. `schemas/avro/telemetry.yaml` lists every metric; other names are refused."""

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, cast

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from starling_common.schemas import read_document

M = TypeVar("M", Counter, Gauge, Histogram)


@cache
def telemetry() -> Mapping[str, Mapping[str, Any]]:
    """Return {type, help, labels, buckets} of every metric by its name."""
    return cast("Mapping[str, Mapping[str, Any]]", read_document("telemetry.yaml")["metrics"])


class Metrics:
    """Creates metrics by name from the catalogue. Each name has one metric object."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self.registry = registry
        self._built: dict[str, Counter | Gauge | Histogram] = {}

    def counter(self, name: str) -> Counter:
        """Return the counter. Raises: KeyError if the catalogue does not list it, TypeError if it lists another type."""
        return self._metric(name, Counter)

    def gauge(self, name: str) -> Gauge:
        """Return the gauge. Raises: KeyError if the catalogue does not list it, TypeError if it lists another type."""
        return self._metric(name, Gauge)

    def histogram(self, name: str) -> Histogram:
        """Return the histogram. Raises: KeyError if the catalogue does not list it, TypeError if it lists another type."""
        return self._metric(name, Histogram)

    def _metric(self, name: str, kind: type[M]) -> M:
        if name not in self._built:
            entry = telemetry()[name]
            if entry["type"] != kind.__name__.lower():
                raise TypeError(f"{name} is listed as a {entry['type']}, not as a {kind.__name__.lower()}")
            extra = {"buckets": entry["buckets"]} if "buckets" in entry else {}
            self._built[name] = kind(name, entry["help"], entry.get("labels", ()), registry=self.registry, **extra)
        return cast("M", self._built[name])
