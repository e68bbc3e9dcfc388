"""Reads an Iceberg table from its files alone: metadata, manifests, Parquet. No Spark, so that Spark is not its own witness."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import fastavro
from pyarrow import parquet


def table_rows(table: Path) -> list[dict[str, Any]]:
    """Every row of the current snapshot; none for a table without one."""
    rows: list[dict[str, Any]] = []
    for data in _data_files(table):
        rows.extend(parquet.ParquetFile(data).read().to_pylist())
    return rows


def snapshots(table: Path) -> list[dict[str, Any]]:
    """All that the table remembers, the oldest first."""
    return list(_metadata(table).get("snapshots", []))


def _metadata(table: Path) -> dict[str, Any]:
    # Not by the hint: a writer that was killed may have left it behind.
    versions = [int(path.name[1:].partition(".")[0]) for path in (table / "metadata").glob("v*.metadata.json")]
    return dict(json.loads((table / "metadata" / f"v{max(versions)}.metadata.json").read_text())) if versions else {}


def _data_files(table: Path) -> list[Path]:
    metadata = _metadata(table)
    current = metadata.get("current-snapshot-id", -1)
    snapshot = next((one for one in metadata.get("snapshots", []) if one["snapshot-id"] == current), None)
    if snapshot is None:
        return []
    files: list[Path] = []
    for manifest in _avro(_path(snapshot["manifest-list"])):
        files += [
            _path(entry["data_file"]["file_path"]) for entry in _avro(_path(manifest["manifest_path"])) if entry["status"] != 2
        ]
    return files


def _avro(path: Path) -> list[Any]:
    with path.open("rb") as source:
        return list(fastavro.reader(source))


def _path(uri: str) -> Path:
    return Path(unquote(urlsplit(uri).path))
