"""Adapter: a Spark job as a Kubernetes Job."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kubernetes import client

_CONFLICT: Final = 409
_NOT_FOUND: Final = 404


@dataclass(frozen=True, slots=True)
class JobSpec:
    """The pod of the job. Every entry of `secrets` and `config_maps` becomes an environment variable, beside `environment`.

    `job`: its package, such as `backfill`.
    """

    job: str
    name: str
    namespace: str
    image: str
    environment: Mapping[str, str]
    config_maps: Sequence[str] = ()
    secrets: Sequence[str] = ()
    service_account: str | None = None
    cpu: str = "2"
    memory: str = "3Gi"
    volume_claim: str = ""
    """A claim that is mounted read-only at `/<component>`; empty: none."""

    @property
    def component(self) -> str:
        """Return the name of the container and of the component."""
        return self.job.replace("_", "-")


def job_body(shape: JobSpec) -> client.V1Job:
    """Return the Job. Its fixed name prevents two concurrent jobs."""
    sources = [client.V1EnvFromSource(config_map_ref=client.V1ConfigMapEnvSource(name=name)) for name in shape.config_maps]
    sources += [client.V1EnvFromSource(secret_ref=client.V1SecretEnvSource(name=name)) for name in shape.secrets]
    volumes, mounts = _volume(shape)
    container = client.V1Container(
        name=shape.component,
        image=shape.image,
        command=["python", "-m", f"starling_spark.jobs.{shape.job}"],
        env=[client.V1EnvVar(name=name, value=value) for name, value in sorted(shape.environment.items())],
        env_from=sources,
        volume_mounts=mounts,
        resources=client.V1ResourceRequirements(
            requests={"cpu": shape.cpu, "memory": shape.memory}, limits={"memory": shape.memory}
        ),
    )
    pod = client.V1PodSpec(
        containers=[container], restart_policy="Never", service_account_name=shape.service_account, volumes=volumes
    )
    labels = {"app.kubernetes.io/name": "starling", "app.kubernetes.io/component": shape.component}
    return client.V1Job(
        api_version="batch/v1",
        kind="Job",
        metadata=client.V1ObjectMeta(name=shape.name, namespace=shape.namespace, labels=labels),
        spec=client.V1JobSpec(
            backoff_limit=3, template=client.V1PodTemplateSpec(metadata=client.V1ObjectMeta(labels=labels), spec=pod)
        ),
    )


def _volume(shape: JobSpec) -> tuple[list[client.V1Volume] | None, list[client.V1VolumeMount] | None]:
    if not shape.volume_claim:
        return None, None
    claim = client.V1PersistentVolumeClaimVolumeSource(claim_name=shape.volume_claim, read_only=True)
    volume = client.V1Volume(name="files", persistent_volume_claim=claim)
    return [volume], [client.V1VolumeMount(name="files", mount_path=f"/{shape.component}", read_only=True)]


class KubernetesJob:
    """A `Submitter`. It deletes a finished job before it creates the next one."""

    def __init__(self, api: client.BatchV1Api, shape: JobSpec) -> None:
        self._api = api
        self._shape = shape

    def is_running(self) -> bool:
        """Return whether a job exists that has not ended. Raises: OSError."""
        found = self._found()
        return found is not None and not _ended(found)

    def has_failed(self) -> bool:
        """Return whether the last job failed after all its retries. Raises: OSError."""
        found = self._found()
        return found is not None and _has(found, "Failed")

    def start(self) -> None:
        """Create a job, unless another API process has created one. Raises: OSError."""
        shape = self._shape
        if self._found() is not None:
            self._tried(lambda: self._api.delete_namespaced_job(shape.name, shape.namespace, propagation_policy="Foreground"))
        self._tried(lambda: self._api.create_namespaced_job(shape.namespace, job_body(shape)))

    def stop(self) -> None:
        """Do nothing: the job is independent of the API process."""

    def _found(self) -> Any:
        return self._tried(lambda: self._api.read_namespaced_job(self._shape.name, self._shape.namespace))

    @staticmethod
    def _tried(call: Any) -> Any:
        try:
            return call()
        except client.ApiException as error:
            if error.status in {_CONFLICT, _NOT_FOUND}:
                return None
            raise OSError(f"Kubernetes: {error.status} {error.reason}") from error


def _ended(job: Any) -> bool:
    return _has(job, "Complete") or _has(job, "Failed")


def _has(job: Any, condition: str) -> bool:
    return any(one.type == condition and one.status == "True" for one in job.status.conditions or ())
