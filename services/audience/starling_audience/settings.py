"""Settings of audience sync, read from `STARLING_…` environment variables."""

from typing import Annotated, Final

from pydantic import Field

from starling_common.settings import Cassandra, SecretKeys, ServiceSettings

SERVICE: Final = "audience"


class AudienceSettings(ServiceSettings):
    """Settings of audience sync. Processes share the partitions of each target."""

    cassandra: Cassandra
    secrets: SecretKeys = SecretKeys()
    profile_partitions: Annotated[
        int | None,
        Field(ge=1, le=10_000, description="number of partitions of profile-keyed topics; overrides topics.yaml"),
    ] = None
    max_targets: Annotated[
        int, Field(ge=1, le=1_000, description="maximum of targets of this process, each with a consumer and a thread of its own")
    ] = 200
    batch_seconds: Annotated[
        float, Field(gt=0, le=60, description="time after which a batch is sent that is not full; a full one is sent at once")
    ] = 5.0
    concurrent_requests: Annotated[int, Field(ge=1, le=64, description="maximum of requests to one target at a time")] = 4
    timeout_seconds: Annotated[float, Field(gt=0, le=120, description="timeout of one request")] = 15.0
    lookup_timeout_seconds: Annotated[float, Field(gt=0, le=60, description="timeout of the name resolution of one request")] = 5.0
    queue_kbytes: Annotated[int, Field(ge=64, le=1_048_576, description="memory of unread records of one target, KiB")] = 4_096
    first_retry_seconds: Annotated[
        float, Field(gt=0, le=600, description="wait after the first failure of a target; it doubles")
    ] = 1.0
    probe_seconds: Annotated[
        float, Field(gt=0, le=600, description="wait after five failures in a row, and after ten of the last twenty; it doubles")
    ] = 30.0
    allow_private_addresses: Annotated[
        bool, Field(description="for local stacks only: send to private networks, and over http")
    ] = False
    failpoint: Annotated[
        str | None, Field(description="for tests: kill the process at a point, such as after_send:2 at its second passage")
    ] = None
