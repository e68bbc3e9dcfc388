"""What an operator may turn, read from STARLING_*."""

from typing import Annotated, Literal

from pydantic import Field, SecretStr

from starling_common.http_server import PublicHttp
from starling_common.settings import Cassandra, ServiceSettings


class ApiSettings(ServiceSettings):
    """Settings of one API process."""

    http: PublicHttp
    cassandra: Cassandra
    tokens: Annotated[SecretStr, Field(description="token=role:workspace, comma separated; roles viewer, marketer, admin")]
    timezones: Annotated[
        str,
        Field(
            description="workspace=IANA time zone, comma separated: of segments that name none; UTC where nothing is said",
            examples=["default=Asia/Tokyo,shop=Europe/Berlin"],
        ),
    ] = ""
    cors_origins: Annotated[str, Field(description="origins that a browser may call from, comma separated; empty: none")] = ""
    profile_partitions: Annotated[
        int | None, Field(ge=1, le=10_000, description="overrides topics.yaml, as in the deploy step")
    ] = None
    threads: Annotated[int, Field(ge=1, le=500, description="requests that may wait for a store at the same time")] = 40
    body_timeout_seconds: Annotated[
        float, Field(gt=0, le=600, description="most time for a body, 20 times as much for an upload; beyond it 408")
    ] = 30
    feed_streams: Annotated[int, Field(ge=1, le=1000, description="clients that may follow the feed live at the same time")] = 32
    feed_heartbeat_seconds: Annotated[
        float, Field(gt=0, le=300, description="sign of life on a live feed while nothing happens")
    ] = 15
    backfill_from_records: Annotated[
        int,
        Field(ge=0, description="a segment whose past is longer, in the largest partition, waits for Spark to gather it; 0: never"),
    ] = 0
    backfill_runner: Annotated[
        Literal["none", "process", "kubernetes"],
        Field(description="where the job runs that gathers it; none: it is started by hand"),
    ] = "none"
    backfill_image: Annotated[str, Field(description="kubernetes: the image with Spark and our packages")] = ""
    backfill_namespace: str = "default"
    backfill_config_maps: Annotated[str, Field(description="kubernetes: whose entries are its environment, comma separated")] = ""
    backfill_secrets: Annotated[str, Field(description="kubernetes: the same of secrets")] = ""
    backfill_service_account: str | None = None
    backfill_cpu: str = "2"
    backfill_memory: str = "3Gi"
