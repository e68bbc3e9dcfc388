"""Settings of the projector, read from `STARLING_…` environment variables."""

from typing import Annotated

from pydantic import Field

from starling_common.kafka.access.check import Needs, needs_of
from starling_common.kafka.topics import stage
from starling_common.settings import Cassandra, GroupFailureSeconds, HistoryDays, ServiceSettings

STAGE = "projector"
EVENTS_STAGE = "projector-events"
EVENTS_GROUP_END = "-events"
"""Suffix of the consumer group of events. They are by far the most records and must not delay members and profiles."""


class ProjectorSettings(ServiceSettings):
    """Settings of one projector."""

    cassandra: Cassandra
    group: Annotated[str, Field(min_length=1, description="consumer group; a new one fills the read models from the start")] = (
        stage(STAGE).group
    )
    """The group of events has this name as prefix."""
    batch_records: Annotated[int, Field(ge=1, le=50_000, description="maximum of records in one batch")] = 10_000
    linger_ms: Annotated[
        int,
        Field(ge=0, le=10_000, description="time that a busy projector waits for more records; larger batches cost less a record"),
    ] = 250
    history_days: HistoryDays = 30
    client_failure_seconds: Annotated[
        float,
        Field(
            gt=0,
            description="time after which the process ends if its client gets no answer from the broker although a new client does",
        ),
    ] = 60.0
    group_failure_seconds: GroupFailureSeconds = 120.0
    failpoint: Annotated[
        str | None,
        Field(description="for tests: raise in decode, rows or count for records with a text, such as raise_in_rows:TEXT"),
    ] = None

    @property
    def events_group(self) -> str:
        """Return the consumer group of events."""
        return f"{self.group}{EVENTS_GROUP_END}"

    @property
    def needs(self) -> Needs:
        """Return the rights at the broker."""
        return needs_of(STAGE, {stage(STAGE).group: self.group, stage(EVENTS_STAGE).group: self.events_group})
