"""Adapter: the objects of Kubernetes that the scaler reads and writes. Every call has a time-out and is tried once."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

from kubernetes import client, config
from urllib3.exceptions import HTTPError

from starling_scaler.election import LeaseRecord

CALL_SECONDS: Final = 4.0
"""Time-out of one call."""

_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_PORT: Final = "http"
"""Name of the port at which a worker serves its metrics."""


class KubernetesUnavailable(Exception):
    """The API server gives no answer, or refuses the request; the text is for an operator."""


class Conflict(Exception):
    """The object was changed by another client since it was read."""


class NotFound(Exception):
    """The object does not exist."""


class Pod(NamedTuple):
    """A worker's pod. `address`: host:port; None while it has none."""

    name: str
    address: str | None
    stops: bool


@dataclass(frozen=True, slots=True)
class Scale:
    """The replicas of a StatefulSet. `version` and `uid` are those of the StatefulSet."""

    stateful_set: str
    replicas: int
    selector: str
    version: str
    uid: str


def connected(kubeconfig: Path | None) -> client.ApiClient:
    """Return a client for the cluster of the file, or for that of this pod. Raises: KubernetesUnavailable without either."""
    configuration = client.Configuration()
    try:
        if kubeconfig is None:
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        else:
            config.load_kube_config(str(kubeconfig), client_configuration=configuration)  # type: ignore[no-untyped-call]
    except config.ConfigException as error:
        raise KubernetesUnavailable(f"no access to Kubernetes: {error}") from error
    configuration.retries = False
    return client.ApiClient(configuration)


class Cluster:
    """The calls in one namespace. Any thread may use it. Each raises KubernetesUnavailable if it has no result."""

    def __init__(self, api: client.ApiClient, namespace: str, identity: str) -> None:
        self._namespace = namespace
        self._identity = identity
        self._apps = client.AppsV1Api(api)
        self._core = client.CoreV1Api(api)
        self._coordination = client.CoordinationV1Api(api)

    def scale(self, stateful_set: str) -> Scale:
        """Return the replicas that are asked for. Raises: NotFound."""
        found = self._called(lambda **limit: self._apps.read_namespaced_stateful_set_scale(stateful_set, self._namespace, **limit))
        metadata = found.metadata
        return Scale(stateful_set, found.spec.replicas or 0, found.status.selector, metadata.resource_version, metadata.uid)

    def set_replicas(self, scale: Scale, replicas: int) -> None:
        """Ask for that many replicas. Raises: Conflict if the StatefulSet has changed since it was read, NotFound."""
        body: Any = {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            # The server compares the version: of two scalers that both believe to lead, one step succeeds.
            "metadata": {"name": scale.stateful_set, "namespace": self._namespace, "resourceVersion": scale.version},
            "spec": {"replicas": replicas},
        }
        self._called(
            lambda **limit: self._apps.replace_namespaced_stateful_set_scale(scale.stateful_set, self._namespace, body, **limit)
        )

    def pods(self, selector: str) -> list[Pod]:
        """Return the pods that a selector finds, by name."""
        found = self._called(lambda **limit: self._core.list_namespaced_pod(self._namespace, label_selector=selector, **limit))
        return sorted(_pod(one) for one in found.items)

    def emit_event(self, scale: Scale, reason: str, message: str, *, warning: bool) -> None:
        """Create an Event of the StatefulSet. `reason`: one word, in camel case."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        body: Any = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{scale.stateful_set}.{uuid4().hex[:16]}", "namespace": self._namespace},
            "involvedObject": {
                "apiVersion": "apps/v1",
                "kind": "StatefulSet",
                "name": scale.stateful_set,
                "namespace": self._namespace,
                "uid": scale.uid,
            },
            "reason": reason,
            "message": message[:1024],
            "type": "Warning" if warning else "Normal",
            "source": {"component": "starling-scaler"},
            "reportingComponent": "starling-scaler",
            "reportingInstance": self._identity,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        self._called(lambda **limit: self._core.create_namespaced_event(self._namespace, body, **limit))

    def lease(self, name: str) -> LeaseRecord | None:
        """Return the Lease; None if there is none."""
        try:
            found = self._called(lambda **limit: self._coordination.read_namespaced_lease(name, self._namespace, **limit))
        except NotFound:
            return None
        spec = found.spec
        return LeaseRecord(
            holder=spec.holder_identity or "",
            duration_seconds=float(spec.lease_duration_seconds or 0),
            version=found.metadata.resource_version,
            transitions=spec.lease_transitions or 0,
            acquired_at=None if spec.acquire_time is None else _micro_time(spec.acquire_time),
        )

    def create_lease(self, name: str, holder: str, duration_seconds: float) -> None:
        """Create the Lease. Raises: Conflict if it exists."""
        body = self._lease_body(name, LeaseRecord(holder, duration_seconds, version=""))
        self._called(lambda **limit: self._coordination.create_namespaced_lease(self._namespace, body, **limit))

    def write_lease(self, name: str, record: LeaseRecord) -> None:
        """Replace the Lease that has this version. Raises: Conflict if it has another one, NotFound."""
        body = self._lease_body(name, record)
        self._called(lambda **limit: self._coordination.replace_namespaced_lease(name, self._namespace, body, **limit))

    def _lease_body(self, name: str, record: LeaseRecord) -> Any:
        now = _micro_time(datetime.now(UTC))
        version = {"resourceVersion": record.version} if record.version else {}
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "namespace": self._namespace, **version},
            "spec": {
                "holderIdentity": record.holder,
                "leaseDurationSeconds": max(1, round(record.duration_seconds)),
                "acquireTime": record.acquired_at or now,
                "renewTime": now,
                "leaseTransitions": record.transitions,
            },
        }

    @staticmethod
    def _called(call: Callable[..., Any]) -> Any:
        try:
            return call(_request_timeout=CALL_SECONDS)
        except client.ApiException as error:
            if error.status == _NOT_FOUND:
                raise NotFound(_reason(error)) from error
            if error.status == _CONFLICT:
                raise Conflict(_reason(error)) from error
            raise KubernetesUnavailable(_reason(error)) from error
        except (HTTPError, OSError) as error:
            raise KubernetesUnavailable(f"the API server gives no answer: {error}") from error


def _reason(error: Any) -> str:
    body = " ".join(str(error.body or "").split())
    return f"{error.status} {error.reason} {body[:300]}".strip()


def _micro_time(instant: datetime) -> str:
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _pod(found: Any) -> Pod:
    ports = [port.container_port for one in found.spec.containers for port in one.ports or () if port.name == _PORT]
    host = found.status.pod_ip
    if host and ":" in host:
        host = f"[{host}]"
    address = f"{host}:{ports[0]}" if host and ports else None
    return Pod(found.metadata.name, address, found.metadata.deletion_timestamp is not None)
