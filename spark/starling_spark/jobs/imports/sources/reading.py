"""Adapter: files of an import, row by row, from a local directory or an object store."""

import csv
import json
import os
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from starling_rules.imports import ImportRequest
from starling_spark.jobs.imports.rows import RejectedRow, UnusableFile, check_columns, value_of_cell

_CELL_CHARACTERS: Final = 131_072
"""Most characters of a cell of CSV: a quote without its end would take the rest of the file."""
_LINE_BYTES: Final = 1_048_576
_READ_ROWS: Final = 2_000
_ENDINGS: Final = {"csv": (".csv",), "parquet": (".parquet",), "jsonl": (".jsonl", ".ndjson", ".json")}


class FoundFile(NamedTuple):
    """A file of an import. `name`: its path below `source`, a URI; `version`: changes with its content."""

    name: str
    path: str
    version: str
    size_bytes: int
    source: str


class SourceUnavailable(Exception):
    """The place of the files does not answer. The job tries again."""


def found_files(uri: str, form: str, roots: Sequence[str]) -> list[FoundFile]:
    """Return the file of the URI, or the files with the ending of the format below it, by name.

    `roots`: the URIs below which files may be read; the query of one, such as `endpoint_override`, is that of its files.
    Raises: UnusableFile, SourceUnavailable.
    """
    place = _place(uri)
    root = next((one for one in map(_place, roots) if one.scheme == place.scheme and _is_below(place.path, one.path)), None)
    if root is None:
        known = ", ".join(roots) or "none"
        raise UnusableFile(f"{uri}: is not below a permitted place: add its directory to STARLING_IMPORTS_ROOTS (now: {known})")
    source = place._replace(query=root.query).uri()
    try:
        files, path = _opened(source)
        info = files.get_file_info(path)
        if info.type == fs.FileType.NotFound:
            raise UnusableFile(f"{uri}: there is no such file or directory: correct the path, or grant the right to list it")
        if info.type == fs.FileType.File:
            return [_found(info, info.base_name, source)]
        inside = files.get_file_info(fs.FileSelector(path, recursive=True))
    except PermissionError as error:
        raise UnusableFile(f"{uri}: permission denied: grant the job the right to read it ({error})") from error
    except pa.ArrowInvalid as error:
        raise UnusableFile(f"{uri}: {error}: correct the URI") from error
    except OSError as error:
        if "ACCESS_DENIED" in str(error) or "403" in str(error):
            raise UnusableFile(f"{uri}: access denied: grant the job the right to list and to read it") from error
        raise SourceUnavailable(f"{uri}: {error}") from error
    chosen = [one for one in inside if one.type == fs.FileType.File and one.base_name.lower().endswith(_ENDINGS[form])]
    if not chosen:
        raise UnusableFile(f"{uri}: has no file that ends with {' or '.join(_ENDINGS[form])}: correct the path or the format")
    # A link inside the directory may lead out of it.
    usable = [one for one in chosen if not (place.scheme == "file" and _leads_out(place.path, one.path))]
    return sorted(_found(one, one.path[len(path) :].lstrip("/"), source) for one in usable)


def rows_of(request: ImportRequest, uri: str, path: str, start: int) -> Iterator[tuple[int, dict[str, Any]] | RejectedRow]:
    """Yield the rows after the first `start` ones: the number, 1 for the first row, and the values by column.

    `uri`, `path`: `source` and `path` of the file. Raises: UnusableFile, SourceUnavailable.
    """
    try:
        files, _ = _opened(uri)
        with files.open_input_file(path) as source:
            if request.format == "parquet":
                yield from _parquet_rows(request, source, start)
            else:
                lines = _Lines(source)
                rows = _csv_rows(request, lines) if request.format == "csv" else _json_rows(lines)
                yield from islice(rows, start, None)
    except PermissionError as error:
        raise UnusableFile(f"{path}: permission denied: grant the job the right to read it") from error
    except FileNotFoundError as error:
        raise UnusableFile(f"{path}: the file is gone: import it again when it is back") from error
    except OSError as error:
        raise SourceUnavailable(f"{path}: {error}") from error


def _parquet_rows(request: ImportRequest, source: pa.NativeFile, start: int) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        file = pq.ParquetFile(source)
    except pa.ArrowInvalid as error:
        raise UnusableFile(f"is not Parquet, or only a part of the file: write the file again ({error})") from error
    check_columns(request, file.schema_arrow.names)
    wanted = request.read()
    number = 0
    try:
        for batch in file.iter_batches(_READ_ROWS, columns=wanted):
            if number + batch.num_rows > start:
                for index, values in enumerate(batch.to_pylist(), number + 1):
                    if index > start:
                        yield index, values
            number += batch.num_rows
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise UnusableFile(f"cannot be read after row {number}: write the file again ({error})") from error
    except OSError as error:
        if "Couldn't deserialize" in str(error) or "Unexpected end of stream" in str(error) or "page" in str(error).lower():
            raise UnusableFile(f"is damaged after row {number}: write the file again ({error})") from error
        raise


class _Lines:
    """The lines of a file as text; bytes that are not UTF-8 become lone surrogates, which the mapper rejects by column."""

    def __init__(self, source: pa.NativeFile) -> None:
        self._source = source

    def __iter__(self) -> Iterator[str]:
        rest = b""
        while block := self._source.read(1 << 20):
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                yield line.decode("utf-8", "surrogateescape") + "\n"
            if len(rest) > _LINE_BYTES:
                raise UnusableFile(f"a line has over {_LINE_BYTES} bytes: correct the format of the import, or split the line")
        if rest:
            yield rest.decode("utf-8", "surrogateescape")


def _csv_rows(request: ImportRequest, lines: _Lines) -> Iterator[tuple[int, dict[str, Any]] | RejectedRow]:
    csv.field_size_limit(_CELL_CHARACTERS)
    reader = csv.reader(iter(lines), delimiter=request.delimiter, strict=True)
    try:
        header = next(reader, None)
    except csv.Error as error:
        raise UnusableFile(f"the header is not CSV: correct it, or the delimiter of the import ({error})") from error
    if not header:
        raise UnusableFile("is empty: the first line of CSV has the names of the columns")
    header[0] = header[0].removeprefix("\ufeff")
    check_columns(request, header)
    # The texts of a product stay as they are, such as a name of digits.
    raw = set(header if request.kind == "catalog" else request.roles())
    number = 0
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            number += 1
            yield RejectedRow(number, "", "not_csv", f"the row is not CSV ({error})", "close each quote, and double quotes inside")
            continue
        if cells is None:
            return
        if not cells:
            continue  # an empty line
        number += 1
        if len(cells) != len(header):
            reason = f"the row has {len(cells)} cells under {len(header)} columns"
            yield RejectedRow(
                number, "", "wrong_columns", reason, "quote cells with the delimiter, and complete a row that was cut off"
            )
        else:
            pairs = zip(header, cells, strict=True)
            yield number, {column: cell if column in raw else value_of_cell(cell) for column, cell in pairs}


def _json_rows(lines: _Lines) -> Iterator[tuple[int, dict[str, Any]] | RejectedRow]:
    number = 0
    for line in lines:
        if not line.strip():
            continue
        number += 1
        try:
            found = json.loads(line.removeprefix("\ufeff"))
        except (ValueError, RecursionError) as error:
            reason = "the line is nested too deeply" if isinstance(error, RecursionError) else f"the line is not JSON ({error})"
            yield RejectedRow(number, "", "not_json", reason, "write one object a line, and complete a line that was cut off")
            continue
        if isinstance(found, dict):
            yield number, found
        else:
            yield RejectedRow(number, "", "not_an_object", "the line is no JSON object", "write one object a line")


def _found(info: Any, name: str, source: str) -> FoundFile:
    return FoundFile(name, info.path, f"{info.size}-{info.mtime_ns}", info.size, source)


class _Place(NamedTuple):
    """A URI in its parts. `path`: decoded; of a local file without links, of an object store with the bucket."""

    scheme: str
    path: str
    query: str

    def uri(self) -> str:
        return f"{self.scheme}://{quote(self.path)}" + (f"?{self.query}" if self.query else "")


def _place(uri: str) -> _Place:
    """Raises: UnusableFile for a path that leads upwards."""
    scheme, _, rest = uri.partition("://")
    rest, _, query = rest.partition("?")
    path = unquote(rest)
    if "\0" in path:
        raise UnusableFile(f"{uri}: the path has a null byte: correct the URI")
    if scheme == "file":
        return _Place(scheme, os.path.realpath(path), query)
    if ".." in path.split("/"):
        raise UnusableFile(f"{uri}: the path has the part '..': write the path without it")
    return _Place("s3" if scheme == "s3a" else scheme, path, query)  # Arrow knows no s3a


def _opened(source: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a URI, and the path in it. Raises: pa.ArrowInvalid, OSError."""
    place = _place(source)
    return (fs.LocalFileSystem(), place.path) if place.scheme == "file" else fs.FileSystem.from_uri(source)


def _is_below(path: str, root: str) -> bool:
    root = root.rstrip("/")
    return path.rstrip("/") == root or path.startswith(f"{root}/")


def _leads_out(directory: str, path: str) -> bool:
    return not _is_below(os.path.realpath(path), directory)
