"""A real API server with the StatefulSet controller, and pods whose only process is a pretended worker, for tests of the scaler."""

import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
from kubernetes import client, config
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from starling_common.telemetry.health import HealthServer
from starling_common.testing import free_port
from starling_local.stack.supervision.process import spawn
from tests.kubernetes.control_plane import access, new_key, tools, wait_until
from tests.processes import end

PARTITIONS: Final = 6
_ADMINISTRATOR: Final = "administrator"  # of a server on 127.0.0.1, with no other data than that of the tests
_WORKER_NETWORK: Final = "127.0.50"
"""The loopback addresses of the pods: pods of one StatefulSet have the same port, so each needs an address of its own."""


class ControlPlane:
    """etcd, the API server and the controllers as processes on free ports of 127.0.0.1. The API server can be away."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._programs = tools()
        self.port = free_port()
        self.certificate = directory / "certificates/apiserver.crt"
        self.kubeconfig = directory / "kubeconfig"
        self._etcd = free_port()
        self._key = directory / "sa.key"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start all parts, and return when the API server is ready and the controllers work."""
        new_key(self._key)
        (self.directory / "tokens.csv").write_text(f"{_ADMINISTRATOR},administrator,administrator,system:masters\n")
        self._start(
            "etcd", f"--data-dir={self.directory / 'etcd'}", "--unsafe-no-fsync", "--log-level=warn",
            f"--listen-client-urls=http://127.0.0.1:{self._etcd}", f"--advertise-client-urls=http://127.0.0.1:{self._etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{free_port()}",
        )  # fmt: skip
        self.start_api_server()
        self.kubeconfig.write_text(self.access(_ADMINISTRATOR))
        self._start(
            "kube-controller-manager", f"--kubeconfig={self.kubeconfig}", f"--service-account-private-key-file={self._key}",
            "--use-service-account-credentials=true", "--leader-elect=false", f"--root-ca-file={self.certificate}",
            "--secure-port=0", "--bind-address=127.0.0.1",
        )  # fmt: skip

    def start_api_server(self) -> None:
        """Start the API server, with what it stored before, and return when it is ready."""
        self._start(
            "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{self._etcd}", "--bind-address=127.0.0.1",
            f"--secure-port={self.port}", "--advertise-address=127.0.0.1", f"--cert-dir={self.certificate.parent}",
            "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={self._key}",
            f"--service-account-signing-key-file={self._key}", "--service-cluster-ip-range=10.0.0.0/16",
            "--authorization-mode=RBAC", f"--token-auth-file={self.directory / 'tokens.csv'}", "--endpoint-reconciler-type=none",
        )  # fmt: skip
        wait_until(self._is_ready, "the API server")

    def stop_api_server(self) -> None:
        """End the API server; etcd keeps the objects."""
        end(self._processes.pop("kube-apiserver"))

    def end(self) -> None:
        """End all processes, the last one first."""
        for process in reversed(self._processes.values()):
            end(process)

    def access(self, token: str) -> str:
        """Return a kubeconfig for the holder of the token."""
        return access(f"https://127.0.0.1:{self.port}", self.certificate, token)

    def _is_ready(self) -> bool:
        process = self._processes["kube-apiserver"]
        log = self.directory / "kube-apiserver.log"
        assert process.poll() is None, f"the API server ended: {log.read_text(errors='replace')[-2000:]}"
        if not self.certificate.exists():
            return False
        try:
            answer = httpx.get(
                f"https://127.0.0.1:{self.port}/readyz",
                verify=ssl.create_default_context(cafile=str(self.certificate)),
                headers={"Authorization": f"Bearer {_ADMINISTRATOR}"},
                timeout=5,
            )
        except httpx.HTTPError:
            return False
        return answer.is_success

    def _start(self, name: str, *arguments: str) -> None:
        self._processes[name] = spawn([str(self._programs[name]), *arguments], {}, self.directory / f"{name}.log")


@contextmanager
def control_plane(directory: Path) -> Iterator[ControlPlane]:
    """Yield a running control plane."""
    plane = ControlPlane(directory)
    try:
        plane.start()
        yield plane
    finally:
        plane.end()


@dataclass
class StageLoad:
    """The load on every worker of a stage, from now on."""

    cpu: float = 0.3
    records: float = 100.0
    growth: float = 0.0
    """Of the lag of one worker, records a second."""
    restoring: bool = False
    changed_at: float = field(default_factory=time.monotonic)


class PretendedWorker(Collector):
    """The metrics of a worker under a load, on an address of its own."""

    def __init__(self, address: str, port: int, load: StageLoad, partitions: frozenset[int]) -> None:
        registry = CollectorRegistry()
        registry.register(self)
        self.load, self.partitions = load, partitions
        self._began = self._at = time.monotonic()
        self._cpu = self._records = self._lag = 0.0
        self._lock = threading.Lock()
        self._server = HealthServer((address, port), registry, alive=dict, ready=dict)
        self._server.start()

    def catch_up(self) -> None:
        """Process the whole lag at once."""
        with self._lock:
            self._lag = 0.0

    def stop(self) -> None:
        """Close the server."""
        self._server.stop()

    def collect(self) -> Iterator[Metric]:
        """Yield the counters at this instant."""
        with self._lock:
            now = time.monotonic()
            passed, self._at = now - self._at, now
            self._cpu += self.load.cpu * passed
            self._records += self.load.records * passed
            self._lag = max(0.0, self._lag + self.load.growth * passed)
            cpu, records, lag = self._cpu, self._records, self._lag
        yield CounterMetricFamily("process_cpu_seconds", "-", cpu)
        yield GaugeMetricFamily("process_start_time_seconds", "-", self._began)
        counted = CounterMetricFamily("starling_stream_records", "-", labels=["topic"])
        counted.add_metric(["events.profile"], records)
        yield counted
        lags = GaugeMetricFamily("starling_stream_lag_records", "-", labels=["topic", "partition"])
        lags.add_metric(["events.profile", str(min(self.partitions, default=0))], lag)
        yield lags
        states = GaugeMetricFamily("starling_stream_task_state", "-", labels=["partition", "state"])
        for partition in self.partitions:
            states.add_metric([str(partition), "restoring" if self.load.restoring else "running"], 1)
        yield states


class Node(threading.Thread):
    """In place of a kubelet: starts a pretended worker for each pod, reports its address, and ends those whose pods are gone."""

    def __init__(self, core: Any, namespace: str, port: int, load: StageLoad) -> None:
        super().__init__(name="node", daemon=True)
        self.workers: dict[str, PretendedWorker] = {}
        self._core, self._namespace, self._port, self._load = core, namespace, port, load
        self._stopping = threading.Event()

    def run(self) -> None:
        """Follow the pods until `stop`."""
        while not self._stopping.wait(0.1):
            try:
                self._turn()
            except Exception:  # noqa: BLE001, S112 - the API server is away for a while in one of the tests
                continue

    def stop(self) -> None:
        """End, with all workers."""
        self._stopping.set()
        self.join()
        for worker in self.workers.values():
            worker.stop()

    def catch_up(self) -> None:
        """Let every worker process its whole lag."""
        for worker in list(self.workers.values()):
            worker.catch_up()

    def _turn(self) -> None:
        pods = self._core.list_namespaced_pod(self._namespace, _request_timeout=5).items
        names = sorted(pod.metadata.name for pod in pods)
        for gone in self.workers.keys() - set(names):
            self.workers.pop(gone).stop()
        for number, name in enumerate(names):
            partitions = frozenset(range(number, PARTITIONS, len(names)))
            address = f"{_WORKER_NETWORK}.{int(name.rpartition('-')[2]) + 1}"
            if name in self.workers:
                self.workers[name].partitions = partitions
            else:
                self.workers[name] = PretendedWorker(address, self._port, self._load, partitions)
        for pod in pods:
            if pod.status.pod_ip is None:
                address = f"{_WORKER_NETWORK}.{int(pod.metadata.name.rpartition('-')[2]) + 1}"
                status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
                self._core.patch_namespaced_pod_status(pod.metadata.name, self._namespace, {"status": status}, _request_timeout=5)


@dataclass
class Installation:
    """The objects of the chart that concern the scaler, in a namespace of their own."""

    plane: ControlPlane
    namespace: str
    api: client.ApiClient
    node: Node
    load: StageLoad
    port: int
    fullname: str

    @property
    def stateful_set(self) -> str:
        """Return the name of the segmenter's StatefulSet."""
        return f"{self.fullname}-segmenter"

    def replicas(self) -> int:
        """Return the replicas that the StatefulSet asks for."""
        found: Any = client.AppsV1Api(self.api).read_namespaced_stateful_set(self.stateful_set, self.namespace)
        return int(found.spec.replicas)

    def events(self) -> list[tuple[str, str]]:
        """Return (reason, message) of the Events that scalers created, in their order."""
        found: Any = client.CoreV1Api(self.api).list_namespaced_event(self.namespace).items
        own = [one for one in found if one.reporting_component == "starling-scaler"]
        return [(one.reason, one.message) for one in sorted(own, key=lambda one: one.metadata.creation_timestamp)]

    def holder(self) -> str | None:
        """Return the scaler that holds the Lease."""
        try:
            found: Any = client.CoordinationV1Api(self.api).read_namespaced_lease(f"{self.fullname}-scaler", self.namespace)
        except client.ApiException as error:
            if error.status == 404:
                return None
            raise
        holder: str | None = found.spec.holder_identity
        return holder

    def token(self, component: str) -> str:
        """Return a token of the service account of a component's pods."""
        request: Any = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        found: Any = client.CoreV1Api(self.api).create_namespaced_service_account_token(
            f"{self.fullname}-{component}", self.namespace, request
        )
        token: str = found.status.token
        return token


@contextmanager
def installation(
    plane: ControlPlane, namespace: str, manifests: Sequence[Mapping[str, Any]], fullname: str
) -> Iterator[Installation]:
    """Yield the namespace with these objects, and a node that runs the pods of its StatefulSet."""
    api: Any = config.new_client_from_config(str(plane.kubeconfig))  # type: ignore[no-untyped-call]
    core: Any
    core, apps, rbac = client.CoreV1Api(api), client.AppsV1Api(api), client.RbacAuthorizationV1Api(api)
    port, load = free_port(), StageLoad()
    core.create_namespace({"metadata": {"name": namespace}})
    create: dict[str, Callable[[str, Any], Any]] = {
        "ServiceAccount": core.create_namespaced_service_account,
        "Role": rbac.create_namespaced_role,
        "RoleBinding": rbac.create_namespaced_role_binding,
        "StatefulSet": apps.create_namespaced_stateful_set,
    }
    for manifest in manifests:
        if manifest["kind"] == "StatefulSet":
            [container] = manifest["spec"]["template"]["spec"]["containers"]
            container["ports"][0]["containerPort"] = port
        create[manifest["kind"]](namespace, manifest)
    node = Node(core, namespace, port, load)
    node.start()
    try:
        yield Installation(plane, namespace, api, node, load, port, fullname)
    finally:
        node.stop()
        api.close()
