"""Settings of the scaler, read from `STARLING_…` environment variables."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_settings import BaseSettings

from starling_common.settings import FROM_ENVIRONMENT, Http

STAGE = "scaler"


class ScaledStage(BaseModel):
    """One StatefulSet of stream workers, and its limits."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stateful_set: Annotated[str, Field(min_length=1, description="name of the StatefulSet, in the namespace of the settings")]
    min_replicas: Annotated[int, Field(ge=1, description="fewest workers")] = 2
    max_replicas: Annotated[int, Field(ge=1, description="most workers; more than partitions have no work")] = 8
    cpu_cores: Annotated[float, Field(gt=0, le=64, description="cores that one worker can use at full load")] = 1.0
    cpu_target: Annotated[
        float, Field(gt=0, le=1, description="fraction of `cpu_cores` of the busiest worker above which one is added")
    ] = 0.7
    cpu_scale_in: Annotated[
        float,
        Field(gt=0, le=1, description="fraction that the remaining workers may have after one is removed; below `cpu_target`"),
    ] = 0.5
    lag_records: Annotated[int, Field(ge=0, description="records that may wait for one worker")] = 10_000
    catch_up_seconds: Annotated[float, Field(gt=0, description="time within which a larger lag is to be processed")] = 300.0

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_replicas > self.max_replicas:
            raise ValueError(f"min_replicas ({self.min_replicas}) is above max_replicas ({self.max_replicas})")
        if self.cpu_scale_in >= self.cpu_target:
            raise ValueError(f"cpu_scale_in ({self.cpu_scale_in}) has to be below cpu_target ({self.cpu_target})")
        return self


class ScaledNormalizer(ScaledStage):
    """The StatefulSet of the normalizer, and its limits."""


class ScaledSegmenter(ScaledStage):
    """The StatefulSet of the segmenter, and its limits."""


class ScalerSettings(BaseSettings):
    """Settings of one scaler. It connects to Kubernetes and to workers alone, and so has none of the other connections."""

    model_config = FROM_ENVIRONMENT

    http: Http
    instance_id: Annotated[str, Field(min_length=1, description="unique name of this process, such as the name of its pod")]
    log_level: Annotated[str, Field(pattern="^(DEBUG|INFO|WARNING|ERROR)$", description="lowest level that is logged")] = "INFO"
    namespace: Annotated[
        str, Field(min_length=1, description="namespace of the StatefulSets, their pods, the Lease and the Events")
    ]
    lease_name: Annotated[str, Field(min_length=1, description="name of the Lease; the scaler that holds it acts")] = (
        "starling-scaler"
    )
    profile_partitions: Annotated[
        int, Field(ge=1, le=10_000, description="partitions of the topics that are keyed by user: the most workers with work")
    ]
    normalizer: ScaledNormalizer | None = None
    segmenter: ScaledSegmenter | None = None
    dry_run: Annotated[bool, Field(description="decide and report, and change nothing")] = False
    interval_seconds: Annotated[float, Field(ge=0.1, le=300, description="time between two decisions")] = 15.0
    window_seconds: Annotated[float, Field(gt=0, le=3_600, description="time over which rates are measured")] = 120.0
    cool_down_seconds: Annotated[
        float, Field(ge=0, le=86_400, description="time after a change of the replicas without a step")
    ] = 180.0
    calm_seconds: Annotated[
        float, Field(ge=0, le=86_400, description="time for which fewer workers have to suffice before one is removed")
    ] = 900.0
    scrape_timeout_seconds: Annotated[float, Field(gt=0, le=60, description="time that a worker has to return its metrics")] = 3.0
    lease_seconds: Annotated[
        float, Field(ge=1, le=300, description="time after which another scaler takes the Lease of one that is gone")
    ] = 15.0
    kubeconfig: Annotated[
        Path | None, Field(description="file with the address and the user of the cluster; unset: the service account of the pod")
    ] = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.normalizer is None and self.segmenter is None:
            raise ValueError("nothing to scale: set STARLING_NORMALIZER__STATEFUL_SET or STARLING_SEGMENTER__STATEFUL_SET")
        if self.window_seconds < self.interval_seconds:
            raise ValueError(
                f"window_seconds ({self.window_seconds:g}) is below interval_seconds ({self.interval_seconds:g}): "
                "a rate needs two samples"
            )
        return self
