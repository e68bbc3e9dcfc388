"""The settings of the job `imports`."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, PositiveInt, SecretStr, field_validator

from starling_common.settings import Cassandra, SecretKeys
from starling_spark.jobs.imports.sources.jdbc import SHIPPED
from starling_spark.lakehouse.settings import LakeSettings


class ImportSettings(LakeSettings):
    """Settings of `python -m starling_spark.jobs.imports`."""

    cassandra: Cassandra
    secrets: SecretKeys = SecretKeys()
    spark_jars: Annotated[
        str,
        Field(description="paths of the jars of JDBC drivers and of Iceberg, separated as in PATH or by commas; files need none"),
    ] = ""
    lake_warehouse: Annotated[
        str, Field(description="warehouse of the catalog whose Iceberg tables may be imported; empty: no catalog")
    ] = ""
    checkpoint_dir: Annotated[str, Field(description="has no effect: Cassandra contains the progress of this job")] = "."
    imports_ingest_url: Annotated[
        str, Field(pattern="^https?://", description="address of the ingest API, such as http://starling-ingest:8080")
    ]
    imports_write_keys: Annotated[
        SecretStr, Field(description="write keys with the scope import, as key=workspace, comma separated; one a workspace")
    ]
    imports_api_url: Annotated[
        str | None, Field(pattern="^https?://", description="address of the API, such as http://starling-api:8080; lists need it")
    ] = None
    imports_api_tokens: Annotated[
        SecretStr,
        Field(
            description="for lists: tokens of the API with the role editor, as token=workspace, comma separated; one a workspace"
        ),
    ] = SecretStr("")
    imports_roots: Annotated[
        str,
        Field(
            description="URIs below which files may be imported, comma separated; empty: none",
            examples=["s3://shop-exports/starling,file:///var/lib/imports"],
        ),
    ] = ""

    imports_jdbc_drivers: Annotated[
        str,
        Field(
            description="JDBC drivers that imports may use beside that of PostgreSQL, as name=class, comma separated",
            examples=["mariadb=org.mariadb.jdbc.Driver"],
        ),
    ] = ""
    imports_jdbc_answer_seconds: Annotated[
        PositiveInt,
        Field(
            description="How long PostgreSQL may send nothing, such as before the first row of a query; the import then waits again"
        ),
    ] = 900
    imports_iceberg_tables: Annotated[
        str,
        Field(
            description="Iceberg tables with their namespace, or namespaces, that imports may read, comma separated; empty: none. "
            "Never those of the lake",
            examples=["crm,shop.products"],
        ),
    ] = ""
    allow_private_addresses: Annotated[bool, Field(description="read databases in private networks too")] = False

    @field_validator("imports_jdbc_drivers")
    @classmethod
    def _name_classes(cls, text: str) -> str:
        drivers(text)
        return text

    @field_validator("imports_write_keys")
    @classmethod
    def _are_pairs(cls, keys: SecretStr) -> SecretStr:
        write_keys(keys)
        return keys

    @field_validator("imports_api_tokens")
    @classmethod
    def _are_tokens(cls, tokens: SecretStr) -> SecretStr:
        api_tokens(tokens)
        return tokens

    def roots(self) -> list[str]:
        """Return the permitted URIs."""
        return _parts(self.imports_roots)

    def iceberg_tables(self) -> tuple[str, ...]:
        """Return the permitted Iceberg tables and namespaces."""
        return tuple(_parts(self.imports_iceberg_tables))


def _parts(text: str) -> list[str]:
    return [found for part in text.split(",") if (found := part.strip())]


def write_keys(keys: SecretStr) -> dict[str, str]:
    """Return a write key by workspace. Raises: ValueError, without the text, if a part is no key=workspace."""
    return _by_workspace(keys, "key")


def api_tokens(tokens: SecretStr) -> dict[str, str]:
    """Return a token by workspace; empty for an empty text. Raises: ValueError, without the text, for another part."""
    return _by_workspace(tokens, "token") if tokens.get_secret_value().strip() else {}


def _by_workspace(secrets: SecretStr, name: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in secrets.get_secret_value().split(","):
        secret, separator, workspace = part.strip().partition("=")
        if not (separator and secret and workspace):
            raise ValueError(f"a part is not {name}=workspace: write {name}=workspace,other-{name}=other-workspace")
        found.setdefault(workspace, secret)
    return found


def drivers(text: str) -> Mapping[str, str]:
    """Return the class of each permitted JDBC driver by its name in a URL. Raises: ValueError if a part is no name=class."""
    found = dict(SHIPPED)
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, separator, class_ = part.partition("=")
        if not (separator and name.isalnum() and class_):
            raise ValueError(f"{part!r} is not name=class: write mariadb=org.mariadb.jdbc.Driver")
        found[name] = class_
    return found
