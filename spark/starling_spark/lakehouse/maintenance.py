"""Adapter: maintenance of tables: compaction of small files, expiry of old snapshots, removal of orphan files."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starling_common.telemetry.logs import log
from starling_common.time.instants import wall_clock_ms
from starling_spark.lakehouse.iceberg import Lake

_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Retention:
    """The retention of old snapshots and orphan files."""

    snapshot_hours: float
    orphan_hours: float


def maintain(lake: Lake, tables: Sequence[str], retention: Retention) -> dict[str, float]:
    """Compact each table, expire old snapshots and delete orphan files. Return the seconds that each table took."""
    took: dict[str, float] = {}
    for table in tables:
        began = time.monotonic()
        done = _compact(lake, table) | _expire(lake, table, retention)
        took[table] = time.monotonic() - began
        log(__name__).info("table_maintained", table=table, seconds=round(took[table], 1), **done)
    return took


def _compact(lake: Lake, table: str) -> dict[str, Any]:
    # Iceberg applies the table's sort order, and skips partitions with fewer than five files.
    rewritten = lake.call(
        "rewrite_data_files", table, "options => map('min-input-files', '5', 'partial-progress.enabled', 'false')"
    )
    lake.call("rewrite_manifests", table)
    return {
        "files_compacted": rewritten.get("rewritten_data_files_count", 0),
        "files_added": rewritten.get("added_data_files_count", 0),
    }


def _expire(lake: Lake, table: str, retention: Retention) -> dict[str, Any]:
    now_ms = wall_clock_ms()
    committed_ms = lake.position_committed_ms(table)
    # The newest snapshot with a position never expires, because rows would be appended twice without it.
    before_ms = int(min(now_ms - retention.snapshot_hours * _HOUR_MS, now_ms if committed_ms is None else committed_ms))
    expired = lake.call("expire_snapshots", table, f"older_than => timestamp_millis({before_ms}), retain_last => 1")
    orphans_ms = int(now_ms - retention.orphan_hours * _HOUR_MS)
    lake.call("remove_orphan_files", table, f"older_than => timestamp_millis({orphans_ms})")
    return {"files_deleted": expired.get("deleted_data_files_count", 0)}
