"""Adapter: maintenance of tables: compaction of small files, expiry of old snapshots, removal of orphan files."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from starling_common.telemetry.logs import log
from starling_common.time.instants import format_instant, wall_clock_ms
from starling_spark.lakehouse.iceberg import Lake
from starling_spark.lakehouse.warehouse_lock import locked_for_deletion

_HOUR_MS = 3_600_000
_GROUP_BYTES: Final = 1024**3
"""The most that one group of files of a compaction has; it bounds the disk and the memory of an executor."""
_COMMITS: Final = 20
"""The most commits of one compaction. Each takes effect alone, so a conflict or a kill loses a part of the work."""


@dataclass(frozen=True, slots=True)
class Retention:
    """The retention of old snapshots and orphan files."""

    snapshot_hours: float
    orphan_hours: float


@dataclass(frozen=True, slots=True)
class Compaction:
    """The bounds of a compaction: the most files of a table that it rewrites, and the size of the new ones."""

    files: int = 10_000
    target_mb: int = 512


DEFAULT: Final = Compaction()


def maintain(
    lake: Lake, tables: Sequence[str], retention: Retention, compaction: Compaction = DEFAULT, warehouse: Path | None = None
) -> dict[str, float]:
    """Compact each table, expire old snapshots and delete orphan files. Return the seconds that each table took.

    A table with a partition field of hours is compacted up to the present hour. Other processes may append meanwhile.
    `warehouse`: the directory of one without tags, of which nothing is deleted while a run reads it.
    """
    took: dict[str, float] = {}
    for table in tables:
        began = time.monotonic()
        done = _compact(lake, table, compaction)
        with locked_for_deletion(warehouse) as is_unread:
            done |= _expire(lake, table, retention) if is_unread else {"expiry": "postponed: a run reads the warehouse"}
        took[table] = time.monotonic() - began
        log(__name__).info("table_maintained", table=table, seconds=round(took[table], 1), **done)
    return took


def _compact(lake: Lake, table: str, compaction: Compaction) -> dict[str, Any]:
    # Iceberg applies the table's sort order, and skips partitions with fewer than five files.
    options = {
        "min-input-files": 5,
        "max-files-to-rewrite": compaction.files,
        "target-file-size-bytes": compaction.target_mb * 1024**2,
        "max-file-group-size-bytes": _GROUP_BYTES,
        "partial-progress.enabled": "true",
        "partial-progress.max-commits": _COMMITS,
    }
    listed = ", ".join(f"'{name}', '{value}'" for name, value in options.items())
    arguments = [f"options => map({listed})"]
    hour = lake.hour_column(table)
    if hour is not None:
        # The files of an open hour would be written again by every run.
        began = format_instant(wall_clock_ms() // _HOUR_MS * _HOUR_MS)
        arguments.append(f"where => \"{hour} < TIMESTAMP '{began}'\"")
    rewritten = lake.call("rewrite_data_files", table, ", ".join(arguments))
    lake.call("rewrite_manifests", table)
    return {
        "files_compacted": rewritten.get("rewritten_data_files_count", 0),
        "files_added": rewritten.get("added_data_files_count", 0),
        "files_failed": rewritten.get("failed_data_files_count", 0),
    }


def _expire(lake: Lake, table: str, retention: Retention) -> dict[str, Any]:
    if not lake.collects_garbage(table):
        return {}
    now_ms = wall_clock_ms()
    committed_ms = lake.protect_position(table)
    # The newest snapshot with a position never expires, because rows would be appended twice without it.
    before_ms = int(min(now_ms - retention.snapshot_hours * _HOUR_MS, now_ms if committed_ms is None else committed_ms))
    expired = lake.call(
        "expire_snapshots", table, f"older_than => timestamp_millis({before_ms}), retain_last => 1, stream_results => true"
    )
    orphans_ms = int(now_ms - retention.orphan_hours * _HOUR_MS)
    listing = "" if lake.lists_by_hadoop(table) else ", prefix_listing => true"
    lake.call("remove_orphan_files", table, f"older_than => timestamp_millis({orphans_ms}){listing}")
    return {"files_deleted": expired.get("deleted_data_files_count", 0)}
