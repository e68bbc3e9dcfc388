"""A Spark job whose executors are pods that its driver creates. `make test-k8s` runs it."""

from pathlib import Path
from signal import SIGKILL
from typing import Any, Final

import httpx

from starling_local.testing import embedded
from tests.kubernetes.control_plane import ControlPlane, wait_until
from tests.kubernetes.prepared import prepare_namespace
from tests.kubernetes.process_kubelet import Pod, ProcessKubelet, explained
from tests.kubernetes.release import Release
from tests.kubernetes.running import API, AUTHORIZED, INGEST, NAMESPACE, PORT, WRITE_KEY, assert_stopped, connected, pods

PATIENCE_SECONDS: Final = 300.0
TRAIT: Final = {"key": "spent", "name": "Spent", "event": "Order Completed", "measure": {"sum": "revenue"}}
SEGMENT: Final = {"key": "spenders", "name": "Spenders", "where": {"trait": "computed.spent", "op": "gte", "value": 100}}
EXECUTOR: Final = "profiles-executor"


class Client:
    """Calls ingest and the API of the release through their Services."""

    def __init__(self, node: ProcessKubelet) -> None:
        self._node = node

    def define(self) -> None:
        """Create the computed trait, and a segment of it."""
        self._call("POST", API, "/v1/computed-traits", TRAIT)
        self._call("POST", API, "/v1/segments", SEGMENT)

    def buy(self, user: str, revenue: int) -> None:
        """Send an order."""
        body = {"userId": user, "event": "Order Completed", "properties": {"revenue": revenue}}
        url = f"http://{self._node.address(NAMESPACE, INGEST)}:{PORT}/v1/track"
        assert httpx.post(url, json=body, auth=(WRITE_KEY, ""), timeout=60).is_success

    def is_spender(self, user: str) -> bool:
        """Return whether the value of the trait has put the user into the segment."""
        return bool(self._call("GET", API, f"/v1/users/{user}/segments")["items"])

    def _call(self, method: str, service: str, path: str, body: object = None) -> Any:
        url = f"http://{self._node.address(NAMESPACE, service)}:{PORT}{path}"
        answer = httpx.request(method, url, json=body, headers=AUTHORIZED, timeout=60)
        assert answer.is_success, answer.text
        return answer.json()


def test_traits_are_computed_by_executors_in_pods_although_one_dies(
    plane: ControlPlane, node: ProcessKubelet, tmp_path: Path
) -> None:
    release, client = Release(plane, tmp_path / "helm", "prod", NAMESPACE), Client(node)
    prepare_namespace(plane.api, NAMESPACE)
    with embedded({"kafka", "registry", "cassandra"}, tmp_path / "parts", kills_cassandra=False) as parts, explained(node):
        two = {"instances": 2, "cores": 1, "cpu": "100m", "memory": "512m", "memoryOverhead": "512m"}
        profiles = {
            "executors": two,
            # All pods of the test share the files of one machine, as they would share an object store.
            "checkpoints": (tmp_path / "checkpoints").as_uri(),
            "persistence": {"enabled": False},
        }
        release.apply("install", "demo", {**connected(parts), "spark": {"profiles": profiles}})
        client.define()
        wait_until(lambda: len(pods(node).get(EXECUTOR, ())) == 2, "two executors", PATIENCE_SECONDS)
        [driver] = pods(node)["profiles"]
        assert {owner(pod) for pod in pods(node)[EXECUTOR]} == {driver.name}

        client.buy("ada", 150)
        client.buy("grace", 60)
        wait_until(lambda: client.is_spender("ada"), "a value computed by the executors", PATIENCE_SECONDS)
        assert not client.is_spender("grace")

        # The driver creates another pod for an executor that is gone, and the states are those of the checkpoint.
        gone, _ = pods(node)[EXECUTOR]
        assert gone.running is not None
        gone.running.process.send_signal(SIGKILL)
        client.buy("grace", 60)
        wait_until(lambda: client.is_spender("grace"), "a value after the loss of an executor", PATIENCE_SECONDS)
        wait_until(lambda: len(others(node, gone)) == 2, "another executor", PATIENCE_SECONDS)

        old = [driver]
        release.helm("uninstall", release.name, "--wait")
        assert_stopped(old)
        wait_until(lambda: not pods(node).get(EXECUTOR), "the end of the executors", PATIENCE_SECONDS)


def others(node: ProcessKubelet, gone: Pod) -> set[str]:
    """Return the names of the running executors without that one."""
    return {pod.name for pod in pods(node).get(EXECUTOR, ())} - {gone.name}


def owner(pod: Pod) -> str:
    """Return the name of the pod with which the cluster removes this one."""
    [found] = pod.manifest["metadata"]["ownerReferences"]
    name: str = found["name"]
    return name
