"""Adapter: the location of the schema files, in a checkout and in an installed package."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The parser in C, which takes a tenth of the time, or the one in Python where PyYAML was built without it."""


@cache
def schema_directory() -> Path:
    """Return the directory of the `.avsc` files, `topics.yaml`, `telemetry.yaml` and `tables.cql`.

    Raises: FileNotFoundError if the package was installed without them.
    """
    here = Path(__file__).resolve()
    packaged = here.parent / "schemas" / "avro"
    if packaged.is_dir():
        return packaged
    for parent in here.parents:
        if (parent / "schemas" / "avro" / "topics.yaml").is_file():
            return parent / "schemas" / "avro"
    raise FileNotFoundError("schemas/avro is neither in the package nor above it: reinstall starling")


@cache
def read_document(name: str) -> Mapping[str, Any]:
    """Return a YAML file of the directory, such as `topics.yaml`: read once in a process, so do not change what it contains."""
    document: Mapping[str, Any] = yaml.load((schema_directory() / name).read_text(), _LOADER)  # noqa: S506 - a safe loader
    return document
