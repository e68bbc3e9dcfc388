"""Adapter: the sink of Parquet files."""

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from starling_spark.sinks.directory import Directory, FileWriter


def parquet_files(uri: str) -> Directory:
    """Return the sink of a directory."""
    return Directory(uri, "parquet", _opened)


def _opened(stream: Any, schema: pa.Schema) -> FileWriter:
    writer: FileWriter = pq.ParquetWriter(stream, schema, compression="zstd")
    return writer
