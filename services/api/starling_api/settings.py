"""Settings of the API, read from `STARLING_…` environment variables."""

from typing import Annotated, Literal

from pydantic import Field, SecretStr

from starling_common.http.server import PublicHttp
from starling_common.settings import Cassandra, HistoryDays, SecretKeys, ServiceSettings


class ApiSettings(ServiceSettings):
    """Settings of one API process."""

    http: PublicHttp
    cassandra: Cassandra
    tokens: Annotated[SecretStr, Field(description="token=role:workspace, comma separated; viewer, editor, approver or admin")]
    secrets: SecretKeys = SecretKeys()
    timezones: Annotated[
        str,
        Field(
            description="workspace=IANA time zone, comma separated: default of segments without a time zone; else UTC",
            examples=["default=Asia/Tokyo,shop=Europe/Berlin"],
        ),
    ] = ""
    cors_origins: Annotated[str, Field(description="browser origins that may call the API, comma separated; empty: none")] = ""
    profile_partitions: Annotated[
        int | None,
        Field(
            ge=1,
            le=10_000,
            description="number of partitions of profile-keyed topics, as in the deploy step; overrides topics.yaml",
        ),
    ] = None
    history_days: HistoryDays = 30
    threads: Annotated[int, Field(ge=1, le=500, description="requests that may wait for Cassandra or Kafka at the same time")] = 40
    body_timeout_seconds: Annotated[
        float,
        Field(
            gt=0, le=600, description="maximum time for a body, for an upload 20 times as much; a slower one is answered with 408"
        ),
    ] = 30
    workspace_reads_per_second: Annotated[
        float, Field(gt=0, description="reads of one workspace in one process; burst: two seconds; beyond it 429")
    ] = 1_000
    workspace_writes_per_second: Annotated[
        float, Field(gt=0, description="writes of one workspace in one process; burst: two seconds; beyond it 429")
    ] = 200
    token_reads_per_second: Annotated[float, Field(gt=0, description="reads with one token; burst: two seconds")] = 500
    token_writes_per_second: Annotated[float, Field(gt=0, description="writes with one token; burst: two seconds")] = 100
    address_requests_per_second: Annotated[
        float,
        Field(
            gt=0,
            description="requests without a known token of one client address (IPv6: one /64 network); burst: two seconds. "
            "Behind a proxy all requests have the proxy's address",
        ),
    ] = 100
    feed_streams: Annotated[int, Field(ge=1, le=1000, description="clients that may follow the feed live at the same time")] = 32
    workspace_feed_streams: Annotated[
        int, Field(ge=1, le=1000, description="clients of one workspace that may follow the feed live at the same time")
    ] = 16
    feed_heartbeat_seconds: Annotated[
        float, Field(gt=0, le=300, description="interval of heartbeat comments on a live feed without changes")
    ] = 15
    allow_private_addresses: Annotated[
        bool, Field(description="for local stacks only: test webhooks in private networks, and over http; as in delivery")
    ] = False
    segment_work: Annotated[
        int,
        Field(
            ge=10,
            description="maximum work of one event with a segment, in points of about a microsecond; more is refused with 422",
        ),
    ] = 1_000
    segment_state_bytes: Annotated[
        int, Field(ge=1_024, description="maximum state of one user with a segment; more is refused with 422")
    ] = 2_097_152
    workspace_segments: Annotated[
        int, Field(ge=1, description="maximum segments of a workspace except archived ones; more are refused with 422")
    ] = 2_000
    workspace_work: Annotated[
        int,
        Field(
            ge=10,
            description="maximum work of one event with all segments of a workspace except paused ones; more is refused with 422",
        ),
    ] = 500_000
    workspace_previews: Annotated[
        int, Field(ge=1, le=500, description="previews, diffs and exports of one workspace at the same time")
    ] = 4
    workspace_previews_waiting: Annotated[
        int,
        Field(
            ge=0,
            le=500,
            description="previews, diffs and exports of one workspace that wait for others to end; more are answered with 429",
        ),
    ] = 8
    workspace_previews_wait_seconds: Annotated[
        float,
        Field(gt=0, le=60, description="maximum time that a preview, diff or export waits; after that it is answered with 429"),
    ] = 10
    self_audit_interval_seconds: Annotated[
        float,
        Field(
            ge=0,
            le=604_800,
            description="interval at which memberships of sampled users are evaluated again and compared with what is published; "
            "0: never",
        ),
    ] = 3600
    self_audit_users: Annotated[
        int,
        Field(ge=1, le=1_000_000, description="minimum of users that each self-audit samples; one in 10,000 where that is more"),
    ] = 1_000
    backfill_from_records: Annotated[
        int,
        Field(
            ge=0,
            description="records in the largest partition above which the backfill job computes a new segment's history; 0: never",
        ),
    ] = 0
    # At a niceness of 10 the backfill took a fifth of the segmenter's rate.
    job_nice: Annotated[
        int, Field(ge=0, le=19, description="process: niceness of the jobs; 0: they compete with the services as equals")
    ] = 19
    job_templates: Annotated[
        str,
        Field(description="kubernetes: directory with the Job of each job as JSON: backfill.json, imports.json, sql_traits.json"),
    ] = "/etc/starling/jobs"
    backfill_runner: Annotated[
        Literal["none", "process", "kubernetes"],
        Field(description="where the API starts the backfill job; none: an operator starts it"),
    ] = "none"
    imports_runner: Annotated[
        Literal["none", "process", "kubernetes"],
        Field(description="where the API starts the job of imports; none: an operator starts it"),
    ] = "none"
    sql_traits_runner: Annotated[
        Literal["none", "process", "kubernetes"],
        Field(
            description="where the API starts the job of traits and views in SQL, which needs the lake; none: an operator starts it"
        ),
    ] = "none"
