"""Core: the description of an import from the command line or a file, its default key, and the copy of a local file."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from starling_local.errors import NotPossible

_FORMATS: Final = {".csv": "csv", ".parquet": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
_STEM_CHARACTERS: Final = 40


def format_of(source: str, given: str | None) -> str:
    """Return the format that is given, else that of the ending. Raises: NotPossible."""
    found = given or _FORMATS.get(Path(source).suffix.lower())
    if found is None:
        raise NotPossible(f"{source}: its ending names no format: give --format csv, parquet or jsonl")
    return found


def columns_of(mappings: Sequence[str]) -> dict[str, str] | None:
    """Return the field of each column from `COLUMN=FIELD`; None without a mapping. Raises: NotPossible."""
    found: dict[str, str] = {}
    for mapping in mappings:
        column, separator, name = mapping.rpartition("=")
        if not (separator and column and name):
            raise NotPossible(f"--mapping {mapping}: write COLUMN=FIELD, such as total=properties.revenue")
        if column in found:
            raise NotPossible(f"--mapping {mapping}: the column {column!r} has a field already: give each column once")
        found[column] = name
    return found or None


def file_document(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the import of a file from its fields, without those that are None. User and product have a column by default."""
    is_catalog = fields["kind"] == "catalog"
    user_column = fields["user_column"] or (None if is_catalog else "user_id")
    product_column = fields["product_column"] or ("product_id" if is_catalog else None)
    wanted = {**fields, "user_column": user_column, "product_column": product_column}
    return {name: value for name, value in wanted.items() if value is not None}


def database_of(text: str, name: str, password: str | None) -> dict[str, Any]:
    """Return the import of a database or an Iceberg table from JSON, with the password. `name`: of the file, for messages.

    Raises: NotPossible.
    """
    try:
        found = json.loads(text)
    except ValueError as error:
        raise NotPossible(f"{name}: is not JSON: {error}") from error
    form = found.get("format") if isinstance(found, dict) else None
    if form != "iceberg" and not (form == "jdbc" and isinstance(found.get("jdbc"), dict)):
        raise NotPossible(
            f'{name}: is no import of a database or a table: write an object with "key", and "format": "jdbc" and "jdbc", or '
            '"format": "iceberg"'
        )
    if not isinstance(found.get("key"), str):
        raise NotPossible(f'{name}: has no "key": give the import one')
    if form == "iceberg" and password is not None:
        raise NotPossible(f"{name}: an Iceberg table has no password: leave out --password-file")
    return found if password is None else {**found, "jdbc": {**found["jdbc"], "password": password}}


_SCHEDULE: Final = frozenset({"schedule", "timezone"})


def new_schedule(document: Mapping[str, Any], stored: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return schedule and time zone of a description, to be set; None if the stored import has them.

    A schedule without a time zone has that of the stored one.
    """
    schedule = document.get("schedule")
    zone = document.get("timezone") or (None if schedule is None else stored.get("timezone"))
    if (schedule, zone) == (stored.get("schedule"), stored.get("timezone")):
        return None
    return {"schedule": schedule, "timezone": zone}


def differing_field(document: Mapping[str, Any], stored: Mapping[str, Any]) -> str | None:
    """Return the first field that differs from the stored import, apart from password and schedule; None without one."""
    for name, value in document.items():
        if name in _SCHEDULE:
            continue
        there = stored.get(name, value)
        if isinstance(value, Mapping) and isinstance(there, Mapping):
            inner = differing_field({field: one for field, one in value.items() if field != "password"}, there)
            if inner is not None:
                return f"{name}/{inner}"
        elif there != value:
            return name
    return None


def default_key(source: str, document: Mapping[str, Any], version: str) -> str:
    """Return a key that is the same for the same file and description. `version`: changes with the content of a local file."""
    stem = re.sub(r"[^a-z0-9_-]+", "-", Path(source).stem.lower())[:_STEM_CHARACTERS].strip("-")
    digest = hashlib.sha256(json.dumps([source, version, document], sort_keys=True).encode()).hexdigest()[:8]
    named = f"{stem}-{digest}" if stem else digest
    return named if named[0].isalpha() else f"import-{named}"


def version_of(file: Path) -> str:
    """Return a text that changes with the content of a file, or with the files of a directory."""
    found = sorted(one for one in file.rglob("*") if one.is_file()) if file.is_dir() else [file]
    return " ".join(f"{one}:{one.stat().st_size}:{one.stat().st_mtime_ns}" for one in found)


def copied(file: Path, directory: Path) -> Path:
    """Link or copy a file, or a directory with its files, into a new directory; return the path there. Raises: NotPossible."""
    shutil.rmtree(directory, ignore_errors=True)
    there = directory / file.name
    try:
        directory.mkdir(parents=True)
        if file.is_dir():
            shutil.copytree(file, there, copy_function=_link)
        else:
            _link(str(file), str(there))
    except OSError as error:
        shutil.rmtree(directory, ignore_errors=True)
        raise NotPossible(f"{file} cannot be copied to {directory}: {error}") from error
    return there


def _link(source: str, there: str) -> None:
    """Make a hard link, which takes no space; copy the file where the file system has none."""
    try:
        os.link(Path(source).resolve(), there)
    except OSError:
        shutil.copy2(source, there)
