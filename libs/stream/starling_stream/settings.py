"""Edge: what an operator may turn on a stream worker. Each service's settings extend these."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from starling_common.settings import ServiceSettings

_MIB = 1024 * 1024


class StreamSettings(ServiceSettings):
    """Units are in the names; bounds are what has been thought through, not what is technically possible."""

    state_dir: Annotated[Path, Field(description="local disk for the states; lost disks are rebuilt from the changelog")]
    unit_max_records: Annotated[int, Field(ge=1, le=100_000, description="records in one transaction, all tasks together")] = 10_000
    timers_per_unit: Annotated[int, Field(ge=1, le=100_000, description="timers a task fires in one transaction")] = 2_000
    switch_keys_per_unit: Annotated[int, Field(ge=1, le=100_000, description="keys a task switches in one transaction")] = 2_000
    buffered_records: Annotated[
        int, Field(ge=1_000, le=10_000_000, description="read ahead of processing, for each topic and partition")
    ] = 20_000
    fetch_wait_ms: Annotated[int, Field(ge=1, le=5_000, description="the longest an idle fetch waits at the broker")] = 100
    fetch_max_bytes: Annotated[int, Field(ge=1_024, le=64 * _MIB, description="of one partition in one fetch")] = 4 * _MIB
    session_timeout_seconds: Annotated[
        float, Field(ge=6, le=1_800, description="the longest a dead worker's partitions wait; a restarted one rejoins at once")
    ] = 30.0
    heartbeat_interval_seconds: Annotated[float, Field(ge=0.1, le=60)] = 3.0
    rebalance_timeout_seconds: Annotated[float, Field(ge=6, le=1_800)] = 60.0
    transaction_timeout_seconds: Annotated[
        float, Field(ge=1, le=900, description="the broker gives up a dead worker's transaction after this")
    ] = 20.0
    state_cache_bytes: Annotated[int, Field(ge=8 * _MIB, description="RocksDB block cache, whole process")] = 128 * _MIB
    state_buffer_bytes: Annotated[int, Field(ge=8 * _MIB, description="RocksDB write buffers, whole process")] = 64 * _MIB
    failpoint: Annotated[str | None, Field(description="tests only: kill the process at this place, such as after_commit:3")] = None
