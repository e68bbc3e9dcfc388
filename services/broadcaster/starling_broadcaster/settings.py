"""Settings of the broadcaster, read from `STARLING_…` environment variables."""

from typing import Annotated

from pydantic import Field

from starling_common.settings import Cassandra, ServiceSettings

STAGE = "broadcaster"


class BroadcasterSettings(ServiceSettings):
    """Settings of the broadcaster. Only one process writes at a time."""

    cassandra: Cassandra
    profile_partitions: Annotated[
        int | None,
        Field(ge=1, le=10_000, description="number of partitions of profile-keyed topics; overrides topics.yaml"),
    ] = None
    transactional_id: Annotated[
        str,
        Field(
            min_length=1,
            description="transactional id, the same for every process of the installation: the broker refuses the writes of one "
            "after another one has started with it",
        ),
    ] = "starling-broadcaster"
    batch_records: Annotated[int, Field(ge=1, le=50_000, description="maximum of members in one transaction")] = 5_000
    backlog_seconds: Annotated[
        float,
        Field(
            gt=0,
            le=3_600,
            description="a broadcast halts while the messenger or its channel needs longer for its queue, at the present speed",
        ),
    ] = 60.0
    failpoint: Annotated[
        str | None, Field(description="for tests: kill the process at a point, such as before_commit:2 at its second passage")
    ] = None
