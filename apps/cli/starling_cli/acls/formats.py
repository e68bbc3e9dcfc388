"""Pure core: the rights of the services as a JSON document, a table, commands of kafka-acls.sh and resources of Strimzi."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

import yaml
from rich.table import Table

from starling_common.kafka.access.rights import Operation, Principals, Resource, Right, Service

_OPTIONS: Final = {Resource.TOPIC: "--topic", Resource.GROUP: "--group", Resource.TRANSACTIONAL_ID: "--transactional-id"}
_STRIMZI_RESOURCES: Final = {Resource.TOPIC: "topic", Resource.GROUP: "group", Resource.TRANSACTIONAL_ID: "transactionalId"}
_STRIMZI_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


class Strimzi(NamedTuple):
    """What a KafkaUser needs beside the rights: the name of the Kafka resource, and how the user proves its name."""

    cluster: str
    authentication: str


def document(services: Sequence[Service], principals: Principals) -> dict[str, Any]:
    """Return the rights as JSON: {"services": [{"service", "principal", "does", "rights": [{"resource", "name", …}]}]}."""
    return {
        "services": [
            {
                "service": service.name,
                "principal": principals.of(service.name),
                "does": service.does,
                "rights": [
                    {
                        "resource": right.resource.value,
                        "name": right.name,
                        "pattern": "prefixed" if right.is_prefix else "literal",
                        "operation": right.operation.value,
                        "reason": right.reason,
                    }
                    for right in service.rights
                ],
            }
            for service in services
        ]
    }


def table(services: Sequence[Service], principals: Principals) -> Table:
    """Return a row for each resource of each service."""
    made = Table("principal", "resource", "name", "operations", "reason", box=None, pad_edge=False)
    for service in services:
        for one in _by_resource(service.rights):
            operations = ", ".join(right.operation.value for right in one)
            reasons = "; ".join(dict.fromkeys(right.reason for right in one))
            name = f"{one[0].name}*" if one[0].is_prefix else one[0].name
            made.add_row(principals.of(service.name), one[0].resource.value, name, operations, reasons)
    return made


def kafka_acls(services: Sequence[Service], principals: Principals) -> Iterator[str]:
    """Yield the commands of kafka-acls.sh, which read the brokers from $BROKERS and the client's properties from $CONFIG."""
    for service in services:
        yield f"# {service.name}: {service.does}"
        for (resource, is_prefix, operations), names in _commands(service.rights).items():
            words = [
                *("--add", "--allow-principal", shlex.quote(principals.of(service.name))),
                *(word for operation in operations for word in ("--operation", _pascal(operation))),
                *(("--resource-pattern-type", "prefixed") if is_prefix else ()),
                *(word for name in names for word in (_OPTIONS[resource], shlex.quote(name))),
            ]
            yield f'kafka-acls.sh --bootstrap-server "$BROKERS" --command-config "$CONFIG" {" ".join(words)}'


def strimzi(services: Sequence[Service], principals: Principals, form: Strimzi) -> str:
    """Return a KafkaUser for each service as YAML. Raises: ValueError for a user that cannot be a name of Kubernetes."""
    return yaml.safe_dump_all((_kafka_user(service, principals, form) for service in services), sort_keys=False)


def _kafka_user(service: Service, principals: Principals, form: Strimzi) -> Mapping[str, Any]:
    user = principals.user(service.name)
    if form.authentication.startswith("tls"):
        user = user.removeprefix("CN=")
    if not _STRIMZI_NAME.fullmatch(user):
        raise ValueError(
            f"{principals.of(service.name)} cannot be a KafkaUser, whose name is that of the user: "
            "use a pattern such as --principal User:starling-{service}, or User:CN=starling-{service} with --authentication tls"
        )
    return {
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": "KafkaUser",
        "metadata": {"name": user, "labels": {"strimzi.io/cluster": form.cluster}},
        "spec": {
            "authentication": {"type": form.authentication},
            "authorization": {"type": "simple", "acls": [_rule(one) for one in _by_resource(service.rights)]},
        },
    }


def _rule(rights: Sequence[Right]) -> Mapping[str, Any]:
    first = rights[0]
    return {
        "resource": {
            "type": _STRIMZI_RESOURCES[first.resource],
            "name": first.name,
            "patternType": "prefix" if first.is_prefix else "literal",
        },
        "operations": [_pascal(right.operation) for right in rights],
        "host": "*",
    }


def _by_resource(rights: Sequence[Right]) -> Iterator[list[Right]]:
    for _, found in groupby(rights, key=lambda right: (right.resource, right.name, right.is_prefix)):
        yield list(found)


def _commands(rights: Sequence[Right]) -> dict[tuple[Resource, bool, tuple[Operation, ...]], list[str]]:
    """Return the names of the resources for each kind, pattern and set of operations: one command for all of them."""
    found: dict[tuple[Resource, bool, tuple[Operation, ...]], list[str]] = {}
    for one in _by_resource(rights):
        operations = tuple(right.operation for right in one)
        found.setdefault((one[0].resource, one[0].is_prefix, operations), []).append(one[0].name)
    return found


def _pascal(operation: Operation) -> str:
    return operation.value.title().replace(" ", "")
