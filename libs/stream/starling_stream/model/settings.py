"""Edge: the settings of a stream worker. Each service's settings extend these."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from starling_common.settings import Cassandra, ServiceSettings

_MIB = 1024 * 1024


class StreamSettings(ServiceSettings):
    """Units are in the names. The limits are those that were tested, not those of the technology."""

    state_dir: Annotated[Path, Field(description="directory of the local stores; a lost one is restored")]
    unit_max_records: Annotated[int, Field(ge=1, le=100_000, description="records in one transaction, all tasks together")] = 10_000
    # A live event waits for the batch before its own: beside 200,000 timers in a second its p99 is 251 ms with 500 and 446 ms with
    # 1,000, and the timers take as long (17 s).
    timers_per_unit: Annotated[
        int,
        Field(ge=1, le=100_000, description="timers in one transaction, all tasks together; at least as many as records"),
    ] = 500
    switch_keys_per_unit: Annotated[int, Field(ge=1, le=100_000, description="keys a task switches in one transaction")] = 2_000
    # The memory of records read ahead stays with the process: with 20,000 a worker that reads 300,000 profiles has 538 MB, with
    # 5,000 it has 487. Afterwards the one processed 20,600 events a second, the other 19,000 (one run each).
    buffered_records: Annotated[
        int, Field(ge=1_000, le=10_000_000, description="records read ahead of processing, by topic and partition")
    ] = 5_000
    fetch_wait_ms: Annotated[int, Field(ge=1, le=5_000, description="longest wait of an idle fetch at the broker")] = 100
    # A fetch is in memory as the broker sent it, split, and unpacked, for all partitions at once: a worker with eight of them and a
    # backlog after a restore had 759 to 834 MB at most with 4 MiB and 654 to 664 with this, at the same speed within the noise of
    # two runs; 602 with 512 KiB, which was a tenth slower.
    fetch_max_bytes: Annotated[
        int, Field(ge=1_024, le=64 * _MIB, description="bytes of one partition in one fetch; a larger Kafka batch is fetched alone")
    ] = 1 * _MIB
    session_timeout_seconds: Annotated[
        float,
        Field(
            ge=6, le=1_800, description="longest wait for a dead worker before its partitions move; a restarted one rejoins at once"
        ),
    ] = 30.0
    leave_group: Annotated[
        bool,
        Field(description="leave the group on SIGTERM, so that its partitions move at once; for workers without a stable id"),
    ] = False
    heartbeat_interval_seconds: Annotated[
        float, Field(ge=0.1, le=60, description="time between two heartbeats to the group's coordinator")
    ] = 3.0
    rebalance_timeout_seconds: Annotated[
        float, Field(ge=6, le=1_800, description="time that a rebalance waits for every member to join")
    ] = 60.0
    transaction_timeout_seconds: Annotated[
        float, Field(ge=1, le=900, description="time after which the broker aborts a dead worker's transaction")
    ] = 20.0
    state_cache_bytes: Annotated[int, Field(ge=8 * _MIB, description="RocksDB block cache, whole process")] = 128 * _MIB
    state_buffer_bytes: Annotated[int, Field(ge=8 * _MIB, description="RocksDB write buffers, whole process")] = 64 * _MIB
    cassandra: Annotated[
        Cassandra | None,
        Field(description="the backing store, which makes a restore short; without it a restore replays the changelog"),
    ] = None
    tier: Annotated[bool, Field(description="flush the states to Cassandra if it is configured")] = True
    tier_buckets: Annotated[
        int, Field(ge=1, le=4_096, description="Cassandra partitions for one Kafka partition's users; must never change")
    ] = 32
    tier_flush_seconds: Annotated[
        float, Field(ge=0.1, le=300, description="interval in which committed states are flushed to Cassandra")
    ] = 5.0
    tier_dirty_bytes: Annotated[
        int,
        Field(
            ge=1 * _MIB,
            description="limit of unflushed states; above it the worker slows down, above twice the limit it drops them",
        ),
    ] = 96 * _MIB
    tier_wait_seconds: Annotated[float, Field(ge=0, le=600, description="longest wait for Cassandra at the start")] = 10.0
    tier_patience_seconds: Annotated[
        float,
        Field(
            ge=1,
            le=3_600,
            description="longest wait for users that only Cassandra has; then the worker restarts from the changelog",
        ),
    ] = 60.0
    tier_replay_records: Annotated[
        int,
        Field(ge=0, le=10_000_000, description="up to this many changelog records are replayed instead of loading users lazily"),
    ] = 50_000
    standby_replicas: Annotated[
        int,
        Field(
            ge=0,
            le=4,
            description="standby copies of each partition's states on other workers; the greatest value of the group counts",
        ),
    ] = 0
    state_keep_seconds: Annotated[
        float, Field(ge=0, description="how long the local store of a partition that moved away is kept")
    ] = 3_600.0
    failpoint: Annotated[
        str | None, Field(description="tests only: kill the process at this failpoint, such as after_commit:3")
    ] = None
