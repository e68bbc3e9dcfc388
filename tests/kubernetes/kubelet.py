"""A node without containers: a kubelet that only reports pods, and the volumes and addresses that a cloud would provide."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count
from typing import Any, Final

import httpx

from tests.kubernetes.api import Api, Manifest, Refused

NODE: Final = "node"
PROVISIONER: Final = "volumes.tests.starling"
_POLL_SECONDS: Final = 0.2
_LEASE_SECONDS: Final = 10.0
_CAPACITY: Final = {"cpu": "512", "memory": "4Ti", "ephemeral-storage": "4Ti", "pods": "1000"}
_LEASE: Final = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
_CHANGED: Final = frozenset({httpx.codes.CONFLICT, httpx.codes.NOT_FOUND})


def now() -> str:
    """Return the time as Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@contextmanager
def repeatedly(steps: Sequence[Callable[[], None]]) -> Iterator[None]:
    """Call the steps in turn, in a thread, for the duration of the block. Raises: what a step raised, at the end of the block."""
    stopping = threading.Event()

    def run() -> None:
        while not stopping.wait(_POLL_SECONDS):
            for step in steps:
                step()

    with ThreadPoolExecutor(1, "node") as pool:
        running = pool.submit(run)
        try:
            yield
        finally:
            stopping.set()
            running.result()


def unless_changed(act: Callable[[], object]) -> None:
    """Call `act`; an object that has been changed or deleted meanwhile is left to the next look. Raises: Refused."""
    try:
        act()
    except Refused as refused:
        if refused.status not in _CHANGED:
            raise


def remove(api: Api, path: str, uid: str) -> None:
    """Remove a pod that has stopped. Raises: Refused, also if another pod has its name."""
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
    api.request("DELETE", path, options)


class Heartbeat:
    """Registers the node, and renews its lease: without it the pods would be evicted."""

    def __init__(self, api: Api, port: int | None = None) -> None:
        """`port`: at which the kubelet answers the API server."""
        self._api = api
        self._renewed_at = 0.0
        labels = {"kubernetes.io/hostname": NODE, "kubernetes.io/os": "linux", "topology.kubernetes.io/zone": "a", "zone": "a"}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": labels}}
        condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now()}
        status = {
            "capacity": _CAPACITY,
            "allocatable": _CAPACITY,
            "conditions": [condition],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            **({} if port is None else {"daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}),
        }
        api.create(node)
        api.merge(f"/api/v1/nodes/{NODE}/status", {"status": status})
        metadata = {"name": NODE, "namespace": "kube-node-lease"}
        api.create({**_LEASE, "metadata": metadata, "spec": self._spec()})

    def step(self) -> None:
        """Renew the lease when it is time."""
        if time.monotonic() - self._renewed_at >= _LEASE_SECONDS:
            self._renewed_at = time.monotonic()
            path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{NODE}"
            self._api.merge(path, {"spec": self._spec()})

    def _spec(self) -> dict[str, object]:
        renewed = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {"holderIdentity": NODE, "leaseDurationSeconds": 40, "renewTime": renewed}


class Cloud:
    """Binds each claim to a volume of its own, and gives each load balancer an address.

    `address`: returns that of a Service by namespace and name; without it they share one at which nothing listens.
    """

    def __init__(self, api: Api, address: Callable[[str, str], str] = lambda _namespace, _name: "192.0.2.1") -> None:
        self._api = api
        self._address = address

    def step(self) -> None:
        """Look at all claims and services once."""
        for claim in self._api.items("/api/v1/persistentvolumeclaims"):
            if claim["status"].get("phase") == "Pending" and "volumeName" not in claim["spec"]:
                unless_changed(lambda claim=claim: self._api.create(_volume(claim)))  # type: ignore[misc]
        for service in self._api.items("/api/v1/services"):
            if service["spec"]["type"] == "LoadBalancer" and not service["status"].get("loadBalancer"):
                metadata = service["metadata"]
                path = f"/api/v1/namespaces/{metadata['namespace']}/services/{metadata['name']}/status"
                ip = self._address(metadata["namespace"], metadata["name"])
                status = {"status": {"loadBalancer": {"ingress": [{"ip": ip}]}}}
                unless_changed(lambda path=path, status=status: self._api.merge(path, status))  # type: ignore[misc]


def _volume(claim: Manifest) -> Manifest:
    metadata, spec = claim["metadata"], claim["spec"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"pvc-{metadata['uid']}"},
        "spec": {
            "capacity": spec["resources"]["requests"],
            "accessModes": spec["accessModes"],
            "storageClassName": spec["storageClassName"],
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
            },
            "csi": {"driver": PROVISIONER, "volumeHandle": metadata["uid"]},
        },
    }


class PretendKubelet:
    """Reports the pods of the node as ready without running anything; those that run once, as succeeded.

    A pod that refers to a missing ConfigMap, Secret or key does not start, as on a real node. `failing`: values of the label
    `app.kubernetes.io/component` whose pods end with exit code 1.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._addresses = count(1)
        self.failing: set[str] = set()

    def step(self) -> None:
        """Look at all pods of the node once."""
        for pod in self._api.items("/api/v1/pods", fieldSelector=f"spec.nodeName={NODE}"):
            unless_changed(lambda pod=pod: self._sync(pod))  # type: ignore[misc]

    def _sync(self, pod: Manifest) -> None:
        metadata, status = pod["metadata"], pod["status"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        if "deletionTimestamp" in metadata:
            remove(self._api, path, metadata["uid"])
        elif status["phase"] == "Pending":
            missing = missing_references(self._api, pod)
            if not missing:
                self._api.merge(f"{path}/status", {"status": self._started(pod)})
            elif "containerStatuses" not in status:
                state = waiting("CreateContainerConfigError", missing)
                self._api.merge(
                    f"{path}/status",
                    {
                        "status": {
                            "containerStatuses": [container_status(one, state, ready=False) for one in pod["spec"]["containers"]]
                        }
                    },
                )

    def _started(self, pod: Manifest) -> Mapping[str, Any]:
        fails = pod["metadata"].get("labels", {}).get("app.kubernetes.io/component") in self.failing
        running, number = {"running": {"startedAt": now()}}, next(self._addresses)
        ended = {"terminated": {"exitCode": int(fails), "startedAt": now(), "finishedAt": now()}}
        once = pod["spec"]["restartPolicy"] == "Never"
        state, phase = (ended, "Failed" if fails else "Succeeded") if once else (running, "Running")
        done = {"terminated": {"exitCode": 0, "startedAt": now(), "finishedAt": now()}}
        return {
            "phase": phase,
            "podIP": f"10.1.{number // 250}.{number % 250 + 1}",
            "startTime": now(),
            "conditions": conditions(ready=not once),
            "initContainerStatuses": [container_status(one, done, ready=True) for one in pod["spec"].get("initContainers", ())],
            "containerStatuses": [container_status(one, state, ready=not once) for one in pod["spec"]["containers"]],
        }


def conditions(*, ready: bool) -> list[Mapping[str, str]]:
    """Return the conditions of a pod that is scheduled and initialised."""
    states = {"PodScheduled": True, "Initialized": True, "ContainersReady": ready, "Ready": ready}
    return [{"type": name, "status": str(state), "lastTransitionTime": now()} for name, state in states.items()]


def waiting(reason: str, message: str) -> Mapping[str, Any]:
    """Return the state of a container that does not run."""
    return {"waiting": {"reason": reason, "message": message}}


def container_status(
    container: Manifest, state: Mapping[str, Any], *, ready: bool, started: bool | None = None, restarts: int = 0
) -> Mapping[str, Any]:
    """Return the status of a container. `started`: whether its startup probe has passed; None: it has none."""
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": container["image"],
        "ready": ready,
        "restartCount": restarts,
        "started": "running" in state if started is None else started,
        "state": state,
    }


def missing_references(api: Api, pod: Manifest) -> str:
    """Return what a pod refers to and the cluster lacks; an empty text if nothing is missing."""
    namespace, spec = pod["metadata"]["namespace"], pod["spec"]
    missing = []
    for kind, name, keys, optional in _references(spec):
        try:
            found = api.get({"apiVersion": "v1", "kind": kind, "metadata": {"namespace": namespace, "name": name}})
        except Refused as refused:
            if refused.status != httpx.codes.NOT_FOUND:
                raise
            missing += [] if optional else [f"{kind} {name}"]
        else:
            missing += [f"{kind} {name}: key {key}" for key in keys if key not in found.get("data", {}) and not optional]
    return ", ".join(missing)


def _references(spec: Manifest) -> Iterator[tuple[str, str, Sequence[str], bool]]:
    """Yield kind, name, keys and whether it is optional."""
    for container in [*spec.get("initContainers", ()), *spec["containers"]]:
        for source in container.get("envFrom", ()):
            for field, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
                if field in source:
                    yield kind, source[field]["name"], (), source[field].get("optional", False)
        for variable in container.get("env", ()):
            for field, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
                if field in variable.get("valueFrom", {}):
                    reference = variable["valueFrom"][field]
                    yield kind, reference["name"], (reference["key"],), reference.get("optional", False)
    for volume in spec.get("volumes", ()):
        for field, kind, name in (("configMap", "ConfigMap", "name"), ("secret", "Secret", "secretName")):
            if field in volume:
                source = volume[field]
                yield kind, source[name], [item["key"] for item in source.get("items", ())], source.get("optional", False)
