"""Adapter: a Spark job as a Kubernetes Job."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from kubernetes import client, config
from urllib3.exceptions import HTTPError

_CONFLICT: Final = 409
_NOT_FOUND: Final = 404
T = TypeVar("T")


def connected() -> client.BatchV1Api:
    """Return a client by the service account of the pod, or by a kubeconfig (`KUBECONFIG`). Raises: OSError without one."""
    try:
        if "KUBECONFIG" in os.environ:
            config.load_kube_config()  # type: ignore[no-untyped-call]
        else:
            config.load_incluster_config()  # type: ignore[no-untyped-call]
    except config.ConfigException as cause:
        raise OSError(f"Kubernetes: {cause} A runner `kubernetes` needs the token of a service account, or KUBECONFIG") from cause
    return client.BatchV1Api()


class KubernetesJob:
    """A `Submitter`. It deletes a finished job before it creates the next one.

    The Job is the content of a file, with the fixed name that prevents two concurrent jobs. The file is read at each call, so a new
    version counts from the next start on.
    """

    def __init__(self, template: Path, connect: Callable[[], client.BatchV1Api] = connected) -> None:
        """`template`: the Job as JSON, with its name and its namespace; `connect`: at the first call that needs it."""
        self._template = template
        self._connect = connect
        self._connected: client.BatchV1Api | None = None

    @property
    def _api(self) -> client.BatchV1Api:
        if self._connected is None:
            self._connected = self._connect()
        return self._connected

    def is_running(self) -> bool:
        """Return whether a job exists that has not ended. Raises: OSError."""
        found = self._found(self._job())
        return found is not None and not _ended(found)

    def has_failed(self) -> bool:
        """Return whether the last job failed after all its retries. Raises: OSError."""
        found = self._found(self._job())
        return found is not None and _has(found, "Failed")

    def start(self) -> None:
        """Create a job, unless another API process has created one. Raises: OSError."""
        job = self._job()
        name, namespace = _place(job)
        if self._found(job) is not None:
            self._tried(lambda: self._api.delete_namespaced_job(name, namespace, propagation_policy="Foreground"))
        self._tried(lambda: self._api.create_namespaced_job(namespace, job))

    def stop(self) -> None:
        """Do nothing: the job is independent of the API process."""

    def _job(self) -> client.V1Job:
        try:
            job = client.V1Job.model_validate_json(self._template.read_text())
            _place(job)
        except ValueError as cause:
            raise OSError(f"{self._template}: no Job as JSON with a name and a namespace: {cause}") from cause
        return job

    def _found(self, job: client.V1Job) -> Any:
        return self._tried(lambda: self._api.read_namespaced_job(*_place(job)))

    @staticmethod
    def _tried(call: Callable[[], T]) -> T | None:
        try:
            return call()
        except client.ApiException as error:
            if error.status in {_CONFLICT, _NOT_FOUND}:
                return None
            raise OSError(f"Kubernetes: {error.status} {error.reason}") from error
        except HTTPError as error:
            raise OSError(f"Kubernetes does not respond: {error}") from error


def _place(job: client.V1Job) -> tuple[str, str]:
    """Return name and namespace. Raises: ValueError."""
    metadata = job.metadata
    if metadata is None or metadata.name is None or metadata.namespace is None:
        raise ValueError("metadata: set name and namespace")
    return metadata.name, metadata.namespace


def _ended(job: Any) -> bool:
    return _has(job, "Complete") or _has(job, "Failed")


def _has(job: Any, condition: str) -> bool:
    return any(one.type == condition and one.status == "True" for one in job.status.conditions or ())
