"""The settings that all services share. The `settings.py` of each service extends them; names include the unit.

They are read from the environment: `STARLING_KAFKA__BROKERS`, `STARLING_REGISTRY__URL` (two underscores separate nested names).
"""

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class Clock(StrEnum):
    """The source of stream time: the wall clock, or the highest event time of a partition."""

    WALL = "wall"
    EVENT = "event"


DuplicateWindowHours = Annotated[
    int,
    Field(ge=24, le=2_160, description="stream time within which a repeated message id of a user is a duplicate"),
]
"""Read by the normalizer, and by the Spark job that runs its stages again."""


GroupFailureSeconds = Annotated[
    float,
    Field(
        ge=1,
        description="time after which liveness fails if the broker refuses requests of the consumer group and answers others",
    ),
]
"""Read by every process that belongs to a consumer group."""


class Kafka(BaseModel):
    """The connection to the broker."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    brokers: Annotated[str, Field(description="host:port, comma separated", examples=["kafka-0:9092,kafka-1:9092"])]


class SchemaRegistry(BaseModel):
    """The connection to the schema registry."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: Annotated[
        str, Field(description="root of the Confluent-compatible API", examples=["http://registry:8081/apis/ccompat/v7"])
    ]


class Cassandra(BaseModel):
    """The connection to Cassandra."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    contact_points: Annotated[str, Field(description="hosts, comma separated", examples=["cassandra-0,cassandra-1"])]
    port: Annotated[int, Field(gt=0, lt=65_536, description="port of the native protocol, the same on every host")] = 9042
    keyspace: Annotated[str, Field(pattern="^[a-z][a-z0-9_]{0,47}$", description="keyspace of all tables")] = "starling"
    replication_factor: Annotated[int, Field(ge=1, le=7, description="used only when the deploy step creates the keyspace")] = 1
    user: Annotated[str | None, Field(description="user name; unset: no authentication")] = None
    password: Annotated[SecretStr | None, Field(description="password of the user")] = None


class Http(BaseModel):
    """The HTTP address of the process; workers serve only `/healthz`, `/readyz` and `/metrics`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: Annotated[str, Field(description="address to bind; 0.0.0.0 binds every interface")] = "127.0.0.1"
    port: Annotated[int, Field(gt=0, lt=65_536, description="port to bind")]


class ServiceSettings(BaseSettings):
    """The settings of every service. Values that differ between installations have no default."""

    model_config = SettingsConfigDict(env_prefix="STARLING_", env_nested_delimiter="__", frozen=True, extra="ignore")

    kafka: Kafka
    registry: SchemaRegistry
    http: Http
    clock: Annotated[Clock, Field(description="source of stream time; the same value in every service")] = Clock.WALL
    instance_id: Annotated[str, Field(description="stable, unique name of this process, such as the name of its pod", min_length=1)]
    log_level: Annotated[str, Field(pattern="^(DEBUG|INFO|WARNING|ERROR)$", description="lowest level that is logged")] = "INFO"
