"""The settings of the job `imports`."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr, field_validator

from starling_common.settings import Cassandra
from starling_spark.session.settings import SparkSettings


class ImportSettings(SparkSettings):
    """Settings of `python -m starling_spark.jobs.imports`."""

    cassandra: Cassandra
    spark_jars: Annotated[str, Field(description="has no effect: this job needs no connector jars")] = ""
    checkpoint_dir: Annotated[Path, Field(description="has no effect: Cassandra contains the progress of this job")] = Path()
    imports_ingest_url: Annotated[
        str, Field(pattern="^https?://", description="address of the ingest API, such as http://starling-ingest:8080")
    ]
    imports_write_keys: Annotated[
        SecretStr, Field(description="write keys with the scope import, as key=workspace, comma separated; one a workspace")
    ]
    imports_roots: Annotated[
        str,
        Field(
            description="URIs below which files may be imported, comma separated; empty: none",
            examples=["s3://shop-exports/starling,file:///var/lib/imports"],
        ),
    ] = ""

    @field_validator("imports_write_keys")
    @classmethod
    def _are_pairs(cls, keys: SecretStr) -> SecretStr:
        write_keys(keys)
        return keys

    def roots(self) -> list[str]:
        """Return the permitted URIs."""
        return [root for part in self.imports_roots.split(",") if (root := part.strip())]


def write_keys(keys: SecretStr) -> dict[str, str]:
    """Return a write key by workspace. Raises: ValueError, without the text, if a part is no key=workspace."""
    found: dict[str, str] = {}
    for part in keys.get_secret_value().split(","):
        key, separator, workspace = part.strip().partition("=")
        if not (separator and key and workspace):
            raise ValueError("a part is not key=workspace: write key=workspace,other-key=other-workspace")
        found.setdefault(workspace, key)
    return found
