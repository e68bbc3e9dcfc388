"""Edge: what an operator may turn on a stream worker. Each service's settings extend these."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from starling_common.settings import Cassandra, ServiceSettings

_MIB = 1024 * 1024


class StreamSettings(ServiceSettings):
    """Units are in the names; bounds are what has been thought through, not what is technically possible."""

    state_dir: Annotated[Path, Field(description="local disk for the states; lost disks are rebuilt from the changelog")]
    unit_max_records: Annotated[int, Field(ge=1, le=100_000, description="records in one transaction, all tasks together")] = 10_000
    # Live events wait for the round before theirs: beside 200,000 timers in a second their p99 is 251 ms with 500 and 446 ms with
    # 1,000, and the timers are worked off as fast (17 s).
    timers_per_unit: Annotated[
        int,
        Field(ge=1, le=100_000, description="timers in one transaction, all tasks together; as many as records if those are more"),
    ] = 500
    switch_keys_per_unit: Annotated[int, Field(ge=1, le=100_000, description="keys a task switches in one transaction")] = 2_000
    # What is read ahead is memory that stays with the process: with 20,000 a worker that takes in 300,000 profiles has 538 MB, with
    # 5,000 it has 487. Afterwards the one took 20,600 events a second, the other 19,000 (one run each).
    buffered_records: Annotated[
        int, Field(ge=1_000, le=10_000_000, description="read ahead of processing, for each topic and partition")
    ] = 5_000
    fetch_wait_ms: Annotated[int, Field(ge=1, le=5_000, description="the longest an idle fetch waits at the broker")] = 100
    # A fetch is in memory as the broker sent it, cut up, and unpacked, for all partitions at once: a worker with eight of them and
    # a backlog after a restore had 759 to 834 MB at most with 4 MiB and 654 to 664 with this, at the same speed within the noise
    # of two runs; 602 with 512 KiB, which was a tenth slower.
    fetch_max_bytes: Annotated[
        int, Field(ge=1_024, le=64 * _MIB, description="of one partition in one fetch; a greater batch comes alone")
    ] = 1 * _MIB
    session_timeout_seconds: Annotated[
        float, Field(ge=6, le=1_800, description="the longest a dead worker's partitions wait; a restarted one rejoins at once")
    ] = 30.0
    leave_group: Annotated[
        bool,
        Field(description="on SIGTERM give the partitions to the others at once; for workers that do not come back under their id"),
    ] = False
    heartbeat_interval_seconds: Annotated[float, Field(ge=0.1, le=60)] = 3.0
    rebalance_timeout_seconds: Annotated[float, Field(ge=6, le=1_800)] = 60.0
    transaction_timeout_seconds: Annotated[
        float, Field(ge=1, le=900, description="the broker gives up a dead worker's transaction after this")
    ] = 20.0
    state_cache_bytes: Annotated[int, Field(ge=8 * _MIB, description="RocksDB block cache, whole process")] = 128 * _MIB
    state_buffer_bytes: Annotated[int, Field(ge=8 * _MIB, description="RocksDB write buffers, whole process")] = 64 * _MIB
    cassandra: Annotated[
        Cassandra | None,
        Field(description="the tier behind the local stores, which makes a restore short; without it the changelog is all"),
    ] = None
    tier: Annotated[bool, Field(description="use Cassandra for the states where it is configured")] = True
    tier_buckets: Annotated[
        int, Field(ge=1, le=4_096, description="Cassandra partitions for one Kafka partition's users; can never change")
    ] = 32
    tier_flush_seconds: Annotated[float, Field(ge=0.1, le=300, description="how often committed states go to Cassandra")] = 5.0
    tier_dirty_bytes: Annotated[
        int, Field(ge=1 * _MIB, description="states that wait for Cassandra; beyond it the worker slows, beyond twice it lets go")
    ] = 96 * _MIB
    tier_wait_seconds: Annotated[float, Field(ge=0, le=600, description="at the start, for Cassandra to answer")] = 10.0
    tier_patience_seconds: Annotated[
        float,
        Field(ge=1, le=3_600, description="for users that only Cassandra has; then the worker starts anew from the changelog"),
    ] = 60.0
    tier_replay_records: Annotated[
        int,
        Field(ge=0, le=10_000_000, description="so much of a changelog is replayed rather than users read when they are touched"),
    ] = 50_000
    standby_replicas: Annotated[
        int,
        Field(
            ge=0, le=4, description="other workers that keep a copy of each partition's states; the most that any of them asks for"
        ),
    ] = 0
    state_keep_seconds: Annotated[
        float, Field(ge=0, description="how long the state of a partition that moved away is kept on disk, should it come back")
    ] = 3_600.0
    failpoint: Annotated[str | None, Field(description="tests only: kill the process at this place, such as after_commit:3")] = None
