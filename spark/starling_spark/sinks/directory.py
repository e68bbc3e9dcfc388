"""Adapter: a sink of files: a directory for each run, whose manifest is written last.

A directory without a manifest has no rows yet. The reader takes, for each key, the row with the highest version of all
runs with a manifest.
"""

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from starling_spark.sinks.port import MOST_REASON, VERSION, Run, Shape, SinkRefused, SinkUnavailable, Written

MANIFEST: Final = "manifest.json"
_DENIED: Final = ("ACCESS_DENIED", "AccessDenied", "403", "Permission denied")


class FileWriter(Protocol):
    """Writes batches to one file."""

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Append the rows."""

    def close(self) -> None:
        """Write the end of the file."""


@dataclass(frozen=True, slots=True)
class Directory:
    """The files of an export. `uri`: file://, s3:// or gs://; `ending`: of the files; `opened`: returns the writer of a file."""

    uri: str
    ending: str
    opened: Callable[[Any, pa.Schema], FileWriter]

    def check(self, _shape: Shape) -> None:
        """Check that files can be written: create the directory, and write and delete a file."""
        with self._files() as (files, path):
            files.create_dir(path, recursive=True)
            probe = f"{path}/.starling-{uuid.uuid4().hex}"
            files.open_output_stream(probe).close()
            files.delete_file(probe)

    def write(self, shape: Shape, run: Run, batches: Iterable[pa.RecordBatch], _most_rejected: int) -> Written:
        """Write one file. A run that is complete stays as it is."""
        with self._files() as (files, path):
            place, rows, writer, stream = _place(path, run), 0, None, None
            if _exists(files, f"{place}/{MANIFEST}"):
                return Written(0)
            name = f"part-{uuid.uuid4().hex}.{self.ending}"
            try:
                for batch in batches:
                    if writer is None:
                        files.create_dir(place, recursive=True)
                        stream = files.open_output_stream(f"{place}/{name}")
                        writer = self.opened(stream, shape.schema)
                    writer.write_batch(batch)
                    rows += batch.num_rows
            finally:
                if writer is not None and stream is not None:
                    writer.close()
                    stream.close()
            return Written(rows, files=(name,) if rows else ())

    def complete(self, shape: Shape, run: Run, written: Sequence[Written]) -> None:
        """Delete the files of killed tasks, and write the manifest, unless there is one."""
        with self._files() as (files, path):
            place = _place(path, run)
            if _exists(files, f"{place}/{MANIFEST}"):
                return
            files.create_dir(place, recursive=True)
            names = sorted(name for one in written for name in one.files)
            for found in files.get_file_info(fs.FileSelector(place)):
                if found.base_name not in names:
                    files.delete_file(found.path)
            document = {
                "export": run.export,
                "run": run.number,
                "rows": sum(one.accepted for one in written),
                "files": names,
                "columns": {field.name: str(field.type) for field in shape.schema},
                "key": list(shape.key),
                "version": VERSION,
            }
            with files.open_output_stream(f"{place}/.{MANIFEST}") as stream:
                stream.write(json.dumps(document, indent=2).encode())
            # A reader never sees a part of a manifest: the rename is atomic, and object stores show whole objects only.
            files.move(f"{place}/.{MANIFEST}", f"{place}/{MANIFEST}")

    @contextmanager
    def _files(self) -> Iterator[tuple[fs.FileSystem, str]]:
        try:
            yield opened(self.uri)
        except PermissionError as error:
            raise SinkRefused(f"{self.uri}: permission denied: grant the job the right to write there") from error
        except (pa.ArrowInvalid, NotADirectoryError, FileExistsError) as error:
            raise SinkRefused(f"{self.uri}: {_text(error)}: give the URI of a directory") from error
        except OSError as error:
            if any(one in str(error) for one in _DENIED):
                raise SinkRefused(f"{self.uri}: {_text(error)}: grant the job the right to write there") from error
            raise SinkUnavailable(f"{self.uri}: {_text(error)}: wait until the place answers, or correct the URI") from error


def _place(path: str, run: Run) -> str:
    return f"{path}/run={run.number:08}"


def _exists(files: fs.FileSystem, path: str) -> bool:
    return bool(files.get_file_info(path).type == fs.FileType.File)


def opened(uri: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a URI, and the path in it. Raises: pa.ArrowInvalid, OSError."""
    scheme, _, rest = uri.rstrip("/").partition("://")
    if scheme == "file":
        return fs.LocalFileSystem(), unquote(rest)
    files, path = fs.FileSystem.from_uri(f"{'s3' if scheme == 's3a' else scheme}://{rest}")  # Arrow knows no s3a
    return files, path.rstrip("/")


def _text(error: Exception) -> str:
    return str(error).splitlines()[0][:MOST_REASON]
