"""Pure core: datasets, with the names that the specification of OpenLineage gives them. None has a user, a password or a query."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

_NO_POSITIONS: Final[Mapping[int, int]] = MappingProxyType({})
_PORTS: Final = MappingProxyType({"postgres": 5432, "mysql": 3306, "mariadb": 3306, "http": 80, "https": 443})
_SCHEMES: Final = MappingProxyType({"postgresql": "postgres"})
"""The name of a driver or of a scheme, where the specification has another one."""


class Column(NamedTuple):
    """A column of a dataset. `type`: as the source of the dataset writes it."""

    name: str
    type: str


class TableName(NamedTuple):
    """The name of a table in its catalog, beside that of its files. `namespace`: the catalog."""

    namespace: str
    name: str


class Dataset(NamedTuple):
    """A dataset of a run. Only the first two fields identify it.

    `version`: such as the snapshot of a table; `rows`: that the run has written; `positions`: partition of a topic -> the offset
    up to which the run has read.
    """

    namespace: str
    name: str
    version: str | None = None
    columns: tuple[Column, ...] = ()
    rows: int | None = None
    positions: Mapping[int, int] = _NO_POSITIONS
    table: TableName | None = None

    @property
    def place(self) -> tuple[str, str]:
        """Return what identifies the dataset."""
        return self.namespace, self.name

    @property
    def short(self) -> str:
        """Return the name by which a job knows it: of a table of the lake that in its namespace."""
        return self.name if self.table is None else self.table.name.rpartition(".")[2]


class Flow(NamedTuple):
    """What a run reads and writes."""

    inputs: tuple[Dataset, ...] = ()
    outputs: tuple[Dataset, ...] = ()


def kafka_topics(brokers: str, *topics: str) -> tuple[Dataset, ...]:
    """Return topics. `brokers`: as in the settings; the first one names the cluster."""
    first = brokers.split(",", maxsplit=1)[0].strip()
    return tuple(Dataset(f"kafka://{first}", topic) for topic in topics)


def cassandra_tables(contact_points: str, port: int, keyspace: str, *tables: str) -> tuple[Dataset, ...]:
    """Return tables of a keyspace. The first contact point names the cluster."""
    first = contact_points.split(",", maxsplit=1)[0].strip()
    return tuple(Dataset(f"cassandra://{first}:{port}", f"{keyspace}.{table}") for table in tables)


def files(uri: str) -> Dataset:
    """Return a file or a directory. `uri`: a URI, or a path of this machine."""
    parts = urlsplit(uri)
    if parts.scheme in {"", "file"}:
        return Dataset("file", unquote(parts.path))
    scheme = "s3" if parts.scheme in {"s3a", "s3n"} else parts.scheme
    bucket = parts.netloc.rpartition("@")[2]
    # The name of an object has no slash at its beginning, and that of a file of HDFS has one.
    path = unquote(parts.path)
    return Dataset(f"{scheme}://{bucket}", path if scheme == "hdfs" else path.strip("/") or "/")


def database_table(url: str, table: str, schema: str = "public") -> Dataset:
    """Return a table of a database. `url`: of JDBC or of libpq; `schema`: that of a table of PostgreSQL whose name has none."""
    parts = urlsplit(url.removeprefix("jdbc:"))
    scheme = _SCHEMES.get(parts.scheme, parts.scheme)
    full = f"{schema}.{table}" if scheme == "postgres" and "." not in table else table
    return Dataset(_server(scheme, url.removeprefix("jdbc:")), f"{unquote(parts.path).strip('/')}.{full}")


def search_index(url: str, index: str) -> Dataset:
    """Return an index of OpenSearch or Elasticsearch, for which the specification has no name."""
    return Dataset(_server("opensearch", url), index)


def merged(before: Iterable[Dataset], after: Iterable[Dataset]) -> tuple[Dataset, ...]:
    """Return all datasets, each once, with what the later ones know beside the earlier ones."""
    found: dict[tuple[str, str], Dataset] = {}
    for one in (*before, *after):
        known = found.get(one.place)
        found[one.place] = one if known is None else _combined(known, one)
    return tuple(found.values())


def _combined(known: Dataset, one: Dataset) -> Dataset:
    return Dataset(
        *one.place,
        one.version or known.version,
        one.columns or known.columns,
        known.rows if one.rows is None else one.rows,
        {**known.positions, **one.positions},
        one.table or known.table,
    )


def _server(scheme: str, url: str) -> str:
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or _PORTS.get(_SCHEMES.get(parts.scheme, parts.scheme))
    return f"{scheme}://{f'[{host}]' if ':' in host else host}" + (f":{port}" if port else "")
