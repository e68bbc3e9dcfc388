"""Edge: the settings of a stream worker. Each service's settings extend these."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from starling_common.settings import Cassandra, GroupFailureSeconds, ServiceSettings, TraceSettings

_MIB = 1024 * 1024


class StreamSettings(ServiceSettings):
    """Units are in the names. The limits are those that were tested, not those of the technology."""

    state_dir: Annotated[
        Path, Field(description="directory of the local stores, on a local disk; a lost one is restored from the changelog")
    ]
    unit_max_records: Annotated[int, Field(ge=1, le=100_000, description="records in one transaction, all tasks together")] = 10_000
    # A live event waits for the batch before its own: beside 200,000 timers in a second its p99 is 251 ms with 500 and 446 ms with
    # 1,000, and the timers take as long (17 s).
    timers_per_unit: Annotated[
        int,
        Field(ge=1, le=100_000, description="timers in one transaction, all tasks together; more if the batch has more records"),
    ] = 500
    switch_keys_per_unit: Annotated[
        int, Field(ge=1, le=100_000, description="keys that a task switches to a new plan in one transaction")
    ] = 2_000
    # The memory of records read ahead stays with the process: with 20,000 a worker that reads 300,000 profiles has 538 MB, with
    # 5,000 it has 487. Afterwards the one processed 20,600 events a second, the other 19,000 (one run each).
    buffered_records: Annotated[
        int, Field(ge=1_000, le=10_000_000, description="records buffered before processing, for each topic and partition")
    ] = 5_000
    group_failure_seconds: GroupFailureSeconds = 120.0
    traces: TraceSettings = TraceSettings()
    fetch_wait_ms: Annotated[
        int, Field(ge=1, le=5_000, description="maximum wait of a fetch at the broker when there is no record")
    ] = 100
    # A fetch is in memory as the broker sent it, split, and unpacked, for all partitions at once: a worker with eight of them and a
    # backlog after a restore had 759 to 834 MB at most with 4 MiB and 654 to 664 with this, at the same speed within the noise of
    # two runs; 602 with 512 KiB, which was a tenth slower.
    fetch_max_bytes: Annotated[
        int,
        Field(ge=1_024, le=64 * _MIB, description="maximum of one partition in one fetch; a larger record batch is fetched alone"),
    ] = 1 * _MIB
    session_timeout_seconds: Annotated[
        float,
        Field(
            ge=6,
            le=1_800,
            description="time after which the partitions of a dead worker are reassigned; a restarted worker rejoins at once",
        ),
    ] = 30.0
    leave_group: Annotated[
        bool,
        Field(
            description="leave the group on SIGTERM, which reassigns the partitions at once; for instance ids that do not return"
        ),
    ] = False
    heartbeat_interval_seconds: Annotated[
        float, Field(ge=0.1, le=60, description="time between two heartbeats to the group's coordinator")
    ] = 3.0
    rebalance_timeout_seconds: Annotated[
        float, Field(ge=6, le=1_800, description="time that a rebalance waits for every member to join")
    ] = 60.0
    transaction_timeout_seconds: Annotated[
        float, Field(ge=1, le=900, description="time after which the broker aborts the open transaction of a dead worker")
    ] = 20.0
    state_cache_bytes: Annotated[int, Field(ge=8 * _MIB, description="RocksDB block cache, whole process")] = 128 * _MIB
    state_buffer_bytes: Annotated[int, Field(ge=8 * _MIB, description="RocksDB write buffers, whole process")] = 64 * _MIB
    cassandra: Annotated[
        Cassandra | None,
        Field(description="the backing store, which makes a restore short; unset: states are restored from the changelog alone"),
    ] = None
    backing_store: Annotated[bool, Field(description="use the backing store if Cassandra is configured")] = True
    backing_store_buckets: Annotated[
        int, Field(ge=1, le=4_096, description="Cassandra partitions of the users of one Kafka partition; can never change")
    ] = 32
    backing_store_flush_seconds: Annotated[
        float,
        Field(
            ge=0.1,
            le=300,
            description="time between two flushes of committed states to the backing store; a flush comes earlier when the "
            "unflushed states reach a quarter of their bound",
        ),
    ] = 30.0
    backing_store_unflushed_bytes: Annotated[
        int,
        Field(
            ge=1 * _MIB,
            description="bound of the unflushed states. Above it batches are delayed; above twice the bound the states are "
            "dropped from memory and read from the local store later",
        ),
    ] = 96 * _MIB
    backing_store_wait_seconds: Annotated[float, Field(ge=0, le=600, description="time that a start waits for Cassandra")] = 10.0
    backing_store_patience_seconds: Annotated[
        float,
        Field(
            ge=1,
            le=3_600,
            description="time that a record waits for the backing store; then the worker restarts from the changelog",
        ),
    ] = 60.0
    backing_store_replay_records: Annotated[
        int,
        Field(
            ge=0,
            le=10_000_000,
            description="longest changelog that a start replays; a longer one is restored lazily from the backing store",
        ),
    ] = 50_000
    standby_replicas: Annotated[
        int,
        Field(ge=0, le=4, description="standbys of each task on other workers; the highest value in the group applies"),
    ] = 0
    state_keep_seconds: Annotated[
        float, Field(ge=0, description="retention of the local store of a task that is no longer assigned here")
    ] = 3_600.0
    failpoint: Annotated[str | None, Field(description="for tests: end the process at this point, such as after_commit:3")] = None
