"""The sinks by name. A new sink is a file, and a line in `_SINKS`."""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from pydantic import SecretStr

from starling_common.outcome import Refused
from starling_rules.imports import uri_error
from starling_spark.sinks.csv_files import csv_files
from starling_spark.sinks.kafka_topic import KafkaTopic
from starling_spark.sinks.opensearch import OpenSearch
from starling_spark.sinks.parquet_files import parquet_files
from starling_spark.sinks.port import Sink
from starling_spark.sinks.postgres import Postgres

_INDEX: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,254}")
_OF_STORES: Final = frozenset({"endpoint_override", "region", "scheme"})
"""What the query of a URI may have: the address of a store with the API of S3."""
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class Destination(NamedTuple):
    """A destination as an operator names it. `secret`: the name of the setting with the password; `brokers`: of the platform."""

    sink: str
    to: str
    table: str | None
    password: SecretStr | None
    secret: str
    brokers: str


class BadDestination(ValueError):
    """A destination that no sink can use. The text names the field, the reason and the cure."""


def sink_of(destination: Destination) -> Sink:
    """Return the sink. Nothing is opened yet. Raises: BadDestination."""
    build = _SINKS.get(destination.sink)
    if build is None:
        raise BadDestination(f"sink: {destination.sink!r} is unknown: write one of {', '.join(_SINKS)}")
    if destination.table is not None and destination.sink not in {"postgres", "opensearch"}:
        raise BadDestination(f"table: the sink {destination.sink} has none: remove it")
    return build(destination)


def _postgres(destination: Destination) -> Sink:
    scheme, separator, rest = destination.to.partition("://")
    if scheme not in {"postgresql", "postgres"} or not separator:
        raise BadDestination("to: is no address of PostgreSQL: write postgresql://user@host:5432/database")
    if ":" in rest.rpartition("@")[0] or "password=" in rest:
        # The address is shown in messages.
        raise BadDestination(f"to: contains a password: remove it, and write it to {destination.secret}")
    if not destination.table or not all(destination.table.split(".")):
        raise BadDestination("table: is missing: name the table, such as crm.members")
    return Postgres(destination.to, destination.table, destination.password, destination.secret)


def _opensearch(destination: Destination) -> Sink:
    to = destination.to
    if "@" in to and ":" in to.partition("://")[2].rpartition("@")[0]:
        raise BadDestination(f"to: contains a password: remove it, and write it to {destination.secret}")
    try:
        address = urlsplit(to)
        is_valid = address.scheme in {"http", "https"} and bool(address.hostname) and (address.port is None or address.port > 0)
    except ValueError:
        is_valid = False
    if not is_valid or address.path not in {"", "/"} or address.query or address.fragment:
        raise BadDestination("to: is no address of OpenSearch: write https://user@host:9200, or without a user for an API key")
    if destination.password is not None and address.scheme == "http" and address.hostname not in _LOOPBACK:
        raise BadDestination("to: would send the password without TLS: write https://")
    if destination.table is None or _INDEX.fullmatch(destination.table) is None:
        raise BadDestination("table: is no name of an index: write one in small letters, such as crm-members")
    return OpenSearch(to, destination.table, destination.password, destination.secret)


def _files(build: Callable[[str], Sink]) -> Callable[[Destination], Sink]:
    def directory(destination: Destination) -> Sink:
        if "@" in destination.to:
            raise BadDestination("to: contains an @: give credentials by the environment, and write an @ of a name as %40")
        place, _, query = (
            destination.to.partition("?") if destination.to.startswith(("s3://", "s3a://")) else (destination.to, "", "")
        )
        found = uri_error(place)
        if isinstance(found, Refused):
            raise BadDestination(f"to: {found.message.removeprefix('/uri: ')}")
        if unknown := {name for name, _ in parse_qsl(query, keep_blank_values=True)} - _OF_STORES:
            raise BadDestination(f"to: the query has {', '.join(sorted(unknown))}: write only {', '.join(sorted(_OF_STORES))}")
        return build(destination.to)

    return directory


def _kafka(destination: Destination) -> Sink:
    if "/" in destination.to or not destination.to:
        raise BadDestination("to: is no name of a topic: write one without a /")
    return KafkaTopic(destination.brokers, destination.to)


_SINKS: Final[Mapping[str, Callable[[Destination], Sink]]] = MappingProxyType(
    {
        "postgres": _postgres,
        "parquet": _files(parquet_files),
        "csv": _files(csv_files),
        "kafka": _kafka,
        "opensearch": _opensearch,
    }
)
