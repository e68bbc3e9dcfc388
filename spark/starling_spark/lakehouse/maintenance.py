"""Adapter: what keeps tables quick and small: few large files in place of many small ones, old snapshots let go."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starling_common.instants import wall_clock_ms
from starling_common.logs import log
from starling_spark.lakehouse.iceberg import Lake

_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Keeping:
    """How long what is out of date is kept."""

    snapshot_hours: float
    orphan_hours: float


def keep_up(lake: Lake, tables: Sequence[str], keeping: Keeping) -> dict[str, float]:
    """Compact each table, let old snapshots and files without a snapshot go; seconds that each table took."""
    took: dict[str, float] = {}
    for table in tables:
        began = time.monotonic()
        done = _compact(lake, table) | _expire(lake, table, keeping)
        took[table] = time.monotonic() - began
        log(__name__).info("table_kept_up", table=table, seconds=round(took[table], 1), **done)
    return took


def _compact(lake: Lake, table: str) -> dict[str, Any]:
    # Sorted as the table is declared; partitions of fewer than five files are left alone.
    rewritten = lake.call(
        "rewrite_data_files", table, "options => map('min-input-files', '5', 'partial-progress.enabled', 'false')"
    )
    lake.call("rewrite_manifests", table)
    return {
        "files_compacted": rewritten.get("rewritten_data_files_count", 0),
        "files_added": rewritten.get("added_data_files_count", 0),
    }


def _expire(lake: Lake, table: str, keeping: Keeping) -> dict[str, Any]:
    now_ms = wall_clock_ms()
    told_at_ms = lake.told_at_ms(table)
    # The newest snapshot that says how far the table goes is never let go: without it rows would come twice.
    before_ms = int(min(now_ms - keeping.snapshot_hours * _HOUR_MS, now_ms if told_at_ms is None else told_at_ms))
    expired = lake.call("expire_snapshots", table, f"older_than => timestamp_millis({before_ms}), retain_last => 1")
    orphans_ms = int(now_ms - keeping.orphan_hours * _HOUR_MS)
    lake.call("remove_orphan_files", table, f"older_than => timestamp_millis({orphans_ms})")
    return {"files_deleted": expired.get("deleted_data_files_count", 0)}
