"""A release that really runs: its pods are processes, on a real broker, registry and database. `make test-k8s` runs it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from signal import SIGKILL
from typing import Any, Final

import httpx
import pytest

from starling_common.testing import free_port
from starling_local.testing import embedded
from tests.kubernetes.control_plane import ControlPlane, wait_until
from tests.kubernetes.kubelet import Cloud, Heartbeat, repeatedly
from tests.kubernetes.prepared import prepare_namespace
from tests.kubernetes.process_kubelet import Pod, ProcessKubelet
from tests.kubernetes.release import TIMEOUT, Release

NAMESPACE: Final = "marketing"
INGEST: Final = "prod-starling-ingest"
API: Final = "prod-starling-api"
SERVICES: Final = frozenset({"ingest", "normalizer", "segmenter", "projector", "api", "delivery"})
MEMBERSHIP_SECONDS: Final = 300.0
"""Long enough for a machine that is busy otherwise; the latency itself is measured by `make bench-latency`."""
SEGMENT: Final = {
    "key": "big-spenders",
    "name": "Big spenders",
    "where": {"event": "Order Completed", "measure": {"sum": "revenue"}, "op": "gte", "value": 200, "within": "180d"},
}


@pytest.fixture(scope="module")
def node(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessKubelet]:
    """A node whose pods are processes."""
    kubelet = ProcessKubelet(plane.api, tmp_path_factory.mktemp("node"))
    with kubelet.ended(), repeatedly([Heartbeat(plane.api).step, Cloud(plane.api).step, kubelet.step]):
        yield kubelet


@pytest.fixture(scope="module")
def connections(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Any]]:
    """The values of the chart that connect a release with a real broker, registry and database, which are still empty."""
    with embedded({"kafka", "registry", "cassandra"}, tmp_path_factory.mktemp("parts")) as found:
        yield {
            "kafka": {"brokers": found.kafka},
            "schemaRegistry": {"url": found.registry_url},
            "cassandra": {"contactPoints": found.cassandra_host, "port": found.cassandra_port},
            "spark": {"profiles": {"enabled": False}},
            "normalizer": {"persistence": {"enabled": True}},
            "segmenter": {"persistence": {"enabled": True}},
        }


class Client:
    """Calls ingest and the API of a release through their Services."""

    def __init__(self, node: ProcessKubelet) -> None:
        self._node = node

    def define(self) -> None:
        """Create the segment."""
        self._call("POST", API, "/v1/segments", SEGMENT, headers={"Authorization": "Bearer demo-admin-token"})

    def buy(self, user: str) -> None:
        """Send an order that lets the user enter the segment."""
        event = {"userId": user, "event": "Order Completed", "properties": {"revenue": 250}}
        self._call("POST", INGEST, "/v1/track", event, auth=("demo-write-key", ""))

    def segments(self, user: str) -> list[str]:
        """Return the segments of a user."""
        headers = {"Authorization": "Bearer demo-admin-token"}
        answer = self._call("GET", API, f"/v1/users/{user}/segments", headers=headers)
        return [one["segment"] for one in answer["items"]]

    def _call(self, method: str, service: str, path: str, body: object = None, **given: Any) -> Any:
        address = self._node.address(NAMESPACE, service)
        assert address is not None, f"no pod of {service} is ready"
        answer = httpx.request(method, f"http://{address}{path}", json=body, timeout=30, **given)
        assert answer.is_success, answer.text
        return answer.json()


@contextmanager
def explained(node: ProcessKubelet) -> Iterator[None]:
    """Add the logs of all pods to a failure in the block."""
    try:
        yield
    except Exception as error:
        for pod in node.pods.values():
            text = pod.log.read_text(errors="replace") if pod.log.exists() else ""
            error.add_note(f"--- {pod.name}, exits {pod.exits}\n{text[-3000:]}")
        raise


def test_an_event_becomes_a_membership_in_an_installed_release(
    plane: ControlPlane, node: ProcessKubelet, connections: Mapping[str, Any], tmp_path: Path
) -> None:
    release, client = Release(plane, tmp_path, "prod", NAMESPACE), Client(node)
    prepare_namespace(plane.api, NAMESPACE)
    with explained(node):
        release.apply("install", "demo", connections)
        assert set(pods(node)) == SERVICES
        client.define()
        entered(client, "ada")
        assert "Succeeded" in release.helm("test", release.name)

        # A process that dies is started again, in the same pod, and continues.
        [segmenter] = pods(node)["segmenter"]
        assert segmenter.running is not None
        segmenter.running.process.kill()
        wait_until(lambda: status(plane, segmenter) == {"ready": True, "restarts": 1}, "the segmenter's second start")
        assert segmenter.exits == [-SIGKILL]
        entered(client, "grace")

        # An upgrade replaces the pods of every process, each of which stops within its grace period.
        old = alive(node)
        values = {**connections, "logLevel": "WARNING", "segmenter": {"replicas": 2, **connections["segmenter"]}}
        release.apply("upgrade", "demo", values)
        assert_stopped(old)
        assert {name: len(found) for name, found in pods(node).items()} == {**dict.fromkeys(SERVICES, 1), "segmenter": 2}
        entered(client, "mary")

        # A rollback too; the claim of the removed segmenter goes with it, and the other one takes over its partitions.
        old = alive(node)
        release.helm("rollback", release.name, "1", "--wait", "--timeout", TIMEOUT)
        assert_stopped(old)
        wait_until(lambda: claims(plane) == {"state-prod-starling-normalizer-0", "state-prod-starling-segmenter-0"}, "the claims")
        for user in ("barbara", "frances", "jean", "kathleen"):
            entered(client, user)
        assert client.segments("ada") == client.segments("grace") == client.segments("mary") == ["big-spenders"]

        old = alive(node)
        release.helm("uninstall", release.name, "--wait")
        assert_stopped(old)
        assert claims(plane) == {"state-prod-starling-normalizer-0", "state-prod-starling-segmenter-0"}


def test_an_installation_without_a_broker_stops_at_the_deploy_step_which_names_the_cause(
    plane: ControlPlane, node: ProcessKubelet, connections: Mapping[str, Any], tmp_path: Path
) -> None:
    release = Release(plane, tmp_path, "prod", "unreachable")
    prepare_namespace(plane.api, release.namespace)
    values = {**connections, "kafka": {"brokers": f"127.0.0.1:{free_port()}"}, "deploy": {"backoffLimit": 0}}
    with explained(node), pytest.raises(AssertionError, match="pre-install"):
        release.apply("install", "demo", values)
    [deploy] = [pod for pod in node.pods.values() if pod.namespace == release.namespace]
    assert deploy.exits == [1]
    *_, cause = deploy.log.read_text().splitlines()
    assert cause.startswith("deploy: KafkaError")
    assert values["kafka"]["brokers"] in deploy.log.read_text()
    release.helm("uninstall", release.name)


def alive(node: ProcessKubelet) -> list[Pod]:
    """Return the running pods."""
    return [pod for found in pods(node).values() for pod in found]


def assert_stopped(stopped: Sequence[Pod]) -> None:
    """Each of the pods ends, and its process has exited with code 0 after SIGTERM."""
    wait_until(lambda: not any(pod.is_alive() for pod in stopped), "the end of the old pods")
    assert {pod.name: pod.exits[-1] for pod in stopped} == {pod.name: 0 for pod in stopped}


def claims(plane: ControlPlane) -> set[str]:
    """Return the names of the release's claims."""
    found = plane.api.items(f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims")
    return {one["metadata"]["name"] for one in found} - {"checkpoints"}


def pods(node: ProcessKubelet) -> dict[str, list[Pod]]:
    """Return the running pods of each component."""
    found: dict[str, list[Pod]] = {}
    for pod in list(node.pods.values()):
        if pod.running is not None and not pod.stops:
            found.setdefault(pod.manifest["metadata"]["labels"]["app.kubernetes.io/component"], []).append(pod)
    return found


def status(plane: ControlPlane, pod: Pod) -> Mapping[str, Any]:
    """Return what the server has of the pod's container."""
    [found] = plane.api.request("GET", pod.path)["status"]["containerStatuses"]
    return {"ready": found["ready"], "restarts": found["restartCount"]}


def entered(client: Client, user: str) -> None:
    """Send an order of the user, and wait until the API returns the membership."""
    client.buy(user)
    wait_until(lambda: client.segments(user) == ["big-spenders"], f"the membership of {user}", MEMBERSHIP_SECONDS)
