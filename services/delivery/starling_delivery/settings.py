"""What an operator may turn about a delivery channel. Read from `STARLING_…`."""

from typing import Annotated

from pydantic import Field

from starling_common import topics
from starling_common.settings import ServiceSettings


class Settings(ServiceSettings):
    """One process serves one channel."""

    channel: Annotated[str, Field(pattern="^[a-z][a-z0-9_]*$")] = "webhook"
    membership_topic: str = topics.MEMBERSHIP
    definitions_topic: str = topics.WEBHOOK_DEFINITIONS
    retry_topic: str = topics.DELIVERY_RETRY
    outcome_topic: str = topics.DELIVERY
    dead_letter_topic: str = "delivery.dlq"
    group: Annotated[str, Field(min_length=1, description="consumer group; `-retry` is added for the retries")] = "starling-webhook"
    timeout_seconds: Annotated[float, Field(gt=0, le=60, description="of one attempt")] = 15.0
    max_in_flight: Annotated[int, Field(ge=1, le=1000, description="attempts under way at once")] = 64
    batch_messages: Annotated[int, Field(ge=1, le=10_000, description="membership changes taken at once")] = 2000
    waiting_messages: Annotated[int, Field(ge=1, le=1_000_000, description="retries held in memory until they are due")] = 20_000
    retry_delays_seconds: Annotated[tuple[float, ...], Field(min_length=1, description="after the first, second … attempt")] = (
        5.0,
        300.0,
        1800.0,
        7200.0,
        18_000.0,
        36_000.0,
    )
    give_up_after_seconds: Annotated[float, Field(gt=0, le=7 * 86_400, description="from the first attempt on")] = 86_400.0
    failures_before_pause: Annotated[
        int, Field(ge=1, description="failed attempts in a row before a target's batch is put off")
    ] = 5
    allow_private_addresses: Annotated[
        bool, Field(description="for local stacks only: send to private networks, and over http")
    ] = False
