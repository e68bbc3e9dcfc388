"""Wiring: the submitters of the Spark jobs that the API starts, from its settings."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from starling_api.jobs.process import LocalProcess
from starling_api.jobs.runner import Submitter
from starling_api.settings import ApiSettings

if TYPE_CHECKING:
    from starling_api.jobs.kubernetes import JobSpec

Job: TypeAlias = Literal["backfill", "imports", "sql_traits"]


class Place(NamedTuple):
    """Where a job runs: the settings `STARLING_<JOB>_…` of the API."""

    runner: str
    image: str
    namespace: str
    config_maps: str
    secrets: str
    service_account: str | None
    cpu: str
    memory: str
    volume_claim: str = ""


def job_name(job: Job) -> str:
    """Return the name of the Kubernetes Job; the chart grants the API the right to read and to delete it."""
    return f"starling-{job.replace('_', '-')}"


def submitter_of(settings: ApiSettings, job: Job) -> Submitter | None:
    """Return the submitter of the settings; None if an operator starts the jobs."""
    place = _place(settings, job)
    if place.runner == "process":
        return LocalProcess(job, {}, settings.job_nice)
    if place.runner == "kubernetes":
        # A sixth of the processor time of the start of an API that runs no job on Kubernetes.
        from kubernetes import client, config  # noqa: PLC0415

        from starling_api.jobs.kubernetes import KubernetesJob  # noqa: PLC0415

        config.load_incluster_config()  # type: ignore[no-untyped-call]
        return KubernetesJob(client.BatchV1Api(), _job_spec(settings, job, place))
    return None


def _place(settings: ApiSettings, job: Job) -> Place:
    if job == "backfill":
        return Place(
            runner=settings.backfill_runner,
            image=settings.backfill_image,
            namespace=settings.backfill_namespace,
            config_maps=settings.backfill_config_maps,
            secrets=settings.backfill_secrets,
            service_account=settings.backfill_service_account,
            cpu=settings.backfill_cpu,
            memory=settings.backfill_memory,
        )
    if job == "sql_traits":
        return Place(
            runner=settings.sql_traits_runner,
            image=settings.sql_traits_image,
            namespace=settings.sql_traits_namespace,
            config_maps=settings.sql_traits_config_maps,
            secrets=settings.sql_traits_secrets,
            service_account=settings.sql_traits_service_account,
            cpu=settings.sql_traits_cpu,
            memory=settings.sql_traits_memory,
        )
    return Place(
        runner=settings.imports_runner,
        image=settings.imports_image,
        namespace=settings.imports_namespace,
        config_maps=settings.imports_config_maps,
        secrets=settings.imports_secrets,
        service_account=settings.imports_service_account,
        cpu=settings.imports_cpu,
        memory=settings.imports_memory,
        volume_claim=settings.imports_volume_claim,
    )


def _job_spec(settings: ApiSettings, job: Job, place: Place) -> "JobSpec":
    from starling_api.jobs.kubernetes import JobSpec  # noqa: PLC0415 - imports the client of Kubernetes

    environment = {
        "STARLING_INSTANCE_ID": job.replace("_", "-"),
        "STARLING_HTTP__PORT": str(settings.http.port),
        "STARLING_CLOCK": settings.clock.value,
    }
    return JobSpec(
        job=job,
        name=job_name(job),
        namespace=place.namespace,
        image=place.image,
        environment=environment,
        config_maps=_names(place.config_maps),
        secrets=_names(place.secrets),
        service_account=place.service_account,
        cpu=place.cpu,
        memory=place.memory,
        volume_claim=place.volume_claim,
    )


def _names(text: str) -> Sequence[str]:
    return [name for part in text.split(",") if (name := part.strip())]
