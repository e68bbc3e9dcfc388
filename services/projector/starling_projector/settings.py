"""What an operator may turn, read from STARLING_*."""

from typing import Annotated

from pydantic import Field

from starling_common.settings import Cassandra, ServiceSettings
from starling_common.topics import stage

STAGE = "projector"


class ProjectorSettings(ServiceSettings):
    """Settings of one projector."""

    cassandra: Cassandra
    group: Annotated[str, Field(min_length=1, description="consumer group; a new one fills the read models from the start")] = (
        stage(STAGE).group
    )
    batch_records: Annotated[int, Field(ge=1, le=50_000, description="most records of one batch")] = 2000
