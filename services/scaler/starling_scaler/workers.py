"""Adapter: the workers of a stage, by the metrics that each of them serves."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import httpx
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample as Series

from starling_common.telemetry.logs import log
from starling_scaler.cluster import Pod
from starling_scaler.policy.samples import Sample, Worker

_PARALLEL: Final = 16
_RESTORING: Final = frozenset({"assigned", "restoring"})
_RUNNING: Final = "running"


class MetricsMissing(ValueError):
    """The text lacks a metric that every worker has."""


class Workers:
    """Reads the metrics of many pods at a time."""

    def __init__(self, timeout_seconds: float, clock: Callable[[], float]) -> None:
        # Addresses of pods are never behind a proxy.
        self._client = httpx.Client(timeout=timeout_seconds, trust_env=False)
        self._threads = ThreadPoolExecutor(_PARALLEL, thread_name_prefix="scrape")
        self._clock = clock

    def sample(self, pods: Sequence[Pod], replicas: int) -> Sample:
        """Return what the pods report now. A pod that stops, or gives no metrics, is in `silent`."""
        at = self._clock()
        found = dict(zip((pod.name for pod in pods), self._threads.map(self._read, pods), strict=True))
        workers = tuple(worker for _, worker in sorted(found.items()) if worker is not None)
        return Sample(at, replicas, workers, tuple(sorted(name for name, worker in found.items() if worker is None)))

    def close(self) -> None:
        """Close the connections. No call may be in progress."""
        self._threads.shutdown()
        self._client.close()

    def _read(self, pod: Pod) -> Worker | None:
        if pod.address is None or pod.stops:
            return None
        try:
            answer = self._client.get(f"http://{pod.address}/metrics")
            answer.raise_for_status()
            return parse(pod.name, answer.text)
        except (httpx.HTTPError, ValueError) as error:
            log(__name__).debug("metrics_not_read", pod=pod.name, address=pod.address, error=f"{type(error).__name__}: {error}")
            return None


def parse(name: str, text: str) -> Worker:
    """Return the worker that exports this text in the format of Prometheus. Raises: ValueError, MetricsMissing."""
    series: dict[str, list[Series]] = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            series.setdefault(one.name, []).append(one)

    def single(metric: str) -> float:
        if metric not in series:
            raise MetricsMissing(f"{name} has no {metric}")
        return series[metric][0].value

    def total(metric: str) -> float:
        return sum(one.value for one in series.get(metric, ()))

    in_state = _in_state(series.get("starling_stream_task_state", ()))
    running = frozenset(partition for partition, state in in_state.items() if state == _RUNNING)
    loaded = {_partition(one): one.value for one in series.get("starling_stream_loaded_ratio", ())}
    return Worker(
        name=name,
        started_at=single("process_start_time_seconds"),
        cpu_seconds=single("process_cpu_seconds_total"),
        records=total("starling_stream_records_total"),
        lag=total("starling_stream_lag_records"),
        running=running,
        restoring=frozenset(partition for partition, state in in_state.items() if state in _RESTORING),
        # A partition that moved away keeps its last value.
        loading=frozenset(partition for partition, ratio in loaded.items() if ratio < 1 and partition in running),
    )


def _in_state(series: Sequence[Series]) -> Mapping[int, str]:
    return {_partition(one): one.labels["state"] for one in series if one.value == 1}


def _partition(one: Series) -> int:
    return int(one.labels["partition"])
