"""The scaler as a process: it takes a step, reports it, waits without the API server, and gives its Lease up at the end."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry, Gauge, ProcessCollector

from starling_common.telemetry.health import HealthServer
from starling_common.telemetry.metrics import Metrics
from starling_common.testing import Service, eventually, free_port, running
from starling_scaler.cluster import Cluster, Conflict, KubernetesUnavailable, NotFound, connected
from starling_scaler.settings import STAGE
from starling_stream.model.phase import Phase
from starling_stream.state.metrics import Gauges
from tests.integration.scaler.api_server import LEASE, NAMESPACE, STATEFUL_SET, ApiServer, Server, serving

PARTITIONS = 2


@pytest.fixture
def server() -> Iterator[Server]:
    """An API server whose pods are one worker process, with both partitions and a lag that it does not process in time."""
    metrics = Metrics(CollectorRegistry())
    ProcessCollector(registry=metrics.registry)
    gauges = Gauges(metrics)
    for partition in range(PARTITIONS):
        gauges.phase(partition, Phase.RUNNING)
    gauges.sampled({("events.profile", 0): 1_000_000}, (0, 0))
    records = metrics.counter("starling_stream_records_total").labels("events.profile")

    def process() -> float:
        records.inc()
        return 0

    # Every scrape finds one record more.
    Gauge("scraped", "-", registry=metrics.registry).set_function(process)
    worker = HealthServer(("127.0.0.1", free_port()), metrics.registry, alive=dict, ready=dict)
    worker.start()
    with serving(ApiServer([f"127.0.0.1:{worker.port}"])) as found:
        yield found
    worker.stop()


def environment(server: Server, tmp_path: Path, **more: str) -> Mapping[str, str]:
    return {
        "STARLING_NAMESPACE": NAMESPACE,
        "STARLING_LEASE_NAME": LEASE,
        "STARLING_PROFILE_PARTITIONS": str(PARTITIONS + 1),
        "STARLING_KUBECONFIG": str(server.kubeconfig(tmp_path / "kubeconfig")),
        "STARLING_SEGMENTER__STATEFUL_SET": STATEFUL_SET,
        "STARLING_INTERVAL_SECONDS": "0.1",
        "STARLING_WINDOW_SECONDS": "0.5",
        "STARLING_COOL_DOWN_SECONDS": "0.5",
        "STARLING_LEASE_SECONDS": "2",
        **more,
    }


def holder(server: Server) -> str:
    return str((server.api.lease or {}).get("spec", {}).get("holderIdentity", ""))


def log_of(service: Service) -> str:
    return service.log.read_text()


def test_a_scaler_takes_a_step_and_gives_its_lease_up_at_the_end(server: Server, tmp_path: Path) -> None:
    settings = environment(server, tmp_path, STARLING_PROFILE_PARTITIONS=str(PARTITIONS))
    settings = {**settings, "STARLING_SEGMENTER__MIN_REPLICAS": "1", "STARLING_SEGMENTER__MAX_REPLICAS": "4"}
    server.api.replicas = 1
    with running("starling_scaler", settings, tmp_path / "scaler.log") as scaler:
        eventually(lambda: server.api.replicas == 2)
        [event] = eventually(lambda: server.api.events)
        assert (event["reason"], event["type"], event["involvedObject"]["uid"]) == ("ScaledOut", "Normal", "u-1")
        assert event["message"].startswith("1 to 2 replicas: ")
        assert holder(server).startswith("starling_scaler-")
        eventually(lambda: '"reason": "at_partitions"' in log_of(scaler))
        assert server.api.replicas == 2, "there are two partitions"
        assert scaler.stop() == 0
    assert holder(server) == "", "another scaler need not wait"


def test_a_scaler_without_the_right_to_create_events_still_acts(server: Server, tmp_path: Path) -> None:
    server.api.may_create_events = False
    server.api.replicas = 1
    settings = environment(server, tmp_path, STARLING_PROFILE_PARTITIONS=str(PARTITIONS))
    with running("starling_scaler", settings, tmp_path / "scaler.log") as scaler:
        eventually(lambda: server.api.replicas == 2)
        eventually(lambda: "event_not_created" in log_of(scaler))


def test_without_the_api_server_it_is_not_ready_and_lives(server: Server, tmp_path: Path) -> None:
    with running("starling_scaler", environment(server, tmp_path), tmp_path / "scaler.log") as scaler:
        eventually(lambda: holder(server))
        server.stop()
        eventually(lambda: not scaler.is_ready())

        def reported() -> bool:
            checks = httpx.get(f"{scaler.url}/readyz", trust_env=False).json()["checks"]
            return "the API server gives no answer" in checks["kubernetes"]

        eventually(reported)
        eventually(lambda: "kubernetes_unavailable" in log_of(scaler))
        assert httpx.get(f"{scaler.url}/healthz", trust_env=False).is_success
        server.start()
        eventually(scaler.is_ready)


def test_without_access_to_a_cluster_it_does_not_start(tmp_path: Path) -> None:
    settings = {
        "STARLING_NAMESPACE": NAMESPACE,
        "STARLING_PROFILE_PARTITIONS": "2",
        "STARLING_SEGMENTER__STATEFUL_SET": STATEFUL_SET,
        "STARLING_KUBECONFIG": str(tmp_path / "missing"),
    }
    with running("starling_scaler", settings, tmp_path / "scaler.log", ready=False) as scaler:
        assert scaler.process.wait(60) == 1
    assert f'"service": "{STAGE}"' in log_of(scaler)
    assert "no access to Kubernetes" in log_of(scaler)


def test_answers_of_the_api_server_are_the_errors_of_the_adapter(server: Server, tmp_path: Path) -> None:
    cluster = Cluster(connected(server.kubeconfig(tmp_path / "kubeconfig")), NAMESPACE, "a")
    scale = cluster.scale(STATEFUL_SET)
    assert (scale.replicas, scale.selector) == (2, "app=segmenter")
    assert [(pod.name, pod.stops) for pod in cluster.pods(scale.selector)] == [(f"{STATEFUL_SET}-{n}", False) for n in (0, 1)]
    cluster.set_replicas(scale, 0)
    with pytest.raises(Conflict):
        cluster.set_replicas(scale, 3)
    assert cluster.scale(STATEFUL_SET).replicas == 0
    with pytest.raises(NotFound):
        cluster.scale("missing")
    with pytest.raises(KubernetesUnavailable, match="403 Forbidden"):
        cluster.scale("other")
    assert cluster.lease("missing") is None
    assert cluster.lease(LEASE) is None
    cluster.create_lease(LEASE, "a", 15)
    found = cluster.lease(LEASE)
    assert found is not None
    assert (found.holder, found.duration_seconds, found.transitions) == ("a", 15, 0)
    cluster.write_lease(LEASE, found)
    with pytest.raises(Conflict):
        cluster.write_lease(LEASE, found)
    again = cluster.lease(LEASE)
    assert again is not None
    assert again.acquired_at == found.acquired_at, "in microseconds, as it was written"
    server.stop()
    with pytest.raises(KubernetesUnavailable, match="gives no answer"):
        cluster.lease(LEASE)
