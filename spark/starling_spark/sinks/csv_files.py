"""Adapter: the sink of CSV files: UTF-8, a header, `,`, texts in quotes; an empty cell is null, and "" an empty text."""

from typing import Any

import pyarrow as pa
from pyarrow import csv

from starling_spark.sinks.directory import Directory, FileWriter


def csv_files(uri: str) -> Directory:
    """Return the sink of a directory."""
    return Directory(uri, "csv", _opened)


def _opened(stream: Any, schema: pa.Schema) -> FileWriter:
    writer: FileWriter = csv.CSVWriter(stream, schema)
    return writer
