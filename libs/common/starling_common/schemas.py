"""Adapter: the location of the schema files, in a checkout and in an installed package."""

from functools import cache
from pathlib import Path


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
