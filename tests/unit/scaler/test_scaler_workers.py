"""What the scaler reads of a worker: the metrics that the stream layer exports."""

import pytest
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

from starling_common.telemetry.health import HealthServer
from starling_common.telemetry.metrics import Metrics
from starling_scaler.cluster import Pod
from starling_scaler.workers import MetricsMissing, Workers, parse
from starling_stream.model.phase import Phase
from starling_stream.state.metrics import BackingStoreGauges, Gauges


def worker_metrics() -> Metrics:
    """Return the metrics of a worker with the running partitions 0 and 1, one that it restores, and one that moved away."""
    metrics = Metrics(CollectorRegistry())
    ProcessCollector(registry=metrics.registry)
    gauges, store = Gauges(metrics), BackingStoreGauges(metrics)
    for partition, phase in ((0, Phase.RUNNING), (1, Phase.RUNNING), (2, Phase.RESTORING), (3, Phase.REVOKED), (4, Phase.ASSIGNED)):
        gauges.phase(partition, Phase.ASSIGNED)
        gauges.phase(partition, phase)
    gauges.sampled({("events.profile", 0): 5, ("events.behaviour", 0): 7, ("events.profile", 1): 0}, (0, 0))
    metrics.counter("starling_stream_records_total").labels("events.profile").inc(11)
    metrics.counter("starling_stream_records_total").labels("events.behaviour").inc(2)
    store.loaded(0, 1.0)
    store.loaded(1, 0.5)
    store.loaded(3, 0.5)
    return metrics


def test_the_metrics_of_the_stream_layer_are_those_that_the_scaler_reads() -> None:
    worker = parse("segmenter-0", generate_latest(worker_metrics().registry).decode())
    assert (worker.lag, worker.records) == (12, 13)
    assert [sorted(found) for found in (worker.running, worker.restoring, worker.loading)] == [[0, 1], [2, 4], [1]]
    assert worker.cpu_seconds > 0
    assert worker.started_at > 1_600_000_000


def test_another_process_is_no_worker() -> None:
    with pytest.raises(MetricsMissing, match="segmenter-0 has no process_start_time_seconds"):
        parse("segmenter-0", "up 1\n")


def test_pods_are_read_at_their_addresses_and_the_others_are_silent() -> None:
    metrics = worker_metrics()
    server = HealthServer(("127.0.0.1", 0), metrics.registry, alive=dict, ready=dict)
    server.start()
    workers = Workers(5, lambda: 42.0)
    address = f"127.0.0.1:{server.port}"
    pods = [Pod("s-1", address, stops=False), Pod("s-0", address, stops=False), Pod("s-2", None, stops=False)]
    try:
        sample = workers.sample([*pods, Pod("s-3", address, stops=True)], 4)
        assert ([worker.name for worker in sample.workers], sample.silent) == (["s-0", "s-1"], ("s-2", "s-3"))
        assert (sample.at, sample.replicas) == (42.0, 4)
        server.stop()
        assert workers.sample(pods[:1], 1).silent == ("s-1",)
    finally:
        server.stop()
        workers.close()
