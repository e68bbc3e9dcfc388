"""Wiring: the submitters of the Spark jobs that the API starts, from its settings."""

from pathlib import Path
from typing import Literal, TypeAlias

from starling_api.jobs.process import LocalProcess
from starling_api.jobs.runner import Submitter
from starling_api.settings import ApiSettings

Job: TypeAlias = Literal["backfill", "imports", "sql_traits"]


def submitter_of(settings: ApiSettings, job: Job) -> Submitter | None:
    """Return the submitter of the settings; None if an operator starts the jobs."""
    runners = {"backfill": settings.backfill_runner, "imports": settings.imports_runner, "sql_traits": settings.sql_traits_runner}
    runner = runners[job]
    if runner == "process":
        return LocalProcess(job, {}, settings.job_nice)
    if runner == "kubernetes":
        # A sixth of the processor time of the start of an API that runs no job on Kubernetes.
        from starling_api.jobs.kubernetes import KubernetesJob  # noqa: PLC0415

        return KubernetesJob(template(settings, job))
    return None


def template(settings: ApiSettings, job: Job) -> Path:
    """Return the file with the Kubernetes Job of a job."""
    return Path(settings.job_templates, f"{job}.json")
