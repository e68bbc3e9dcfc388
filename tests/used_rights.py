"""The rights of services that the requests to a secured broker have used."""

from collections.abc import Collection, Iterator
from typing import Final

from starling_common.kafka.access.rights import Operation, Resource, Right, Service, load_services
from starling_common.kafka.topics import load_catalogue
from tests.secured_broker import Decision

KINDS: Final = {Resource.TOPIC: "Topic", Resource.GROUP: "Group", Resource.TRANSACTIONAL_ID: "TransactionalId"}


def unused(services: Collection[str], decisions: Collection[Decision]) -> set[tuple[str, str]]:
    """Return service and name of the resource of each right that these services have and that no request has used."""
    used = {(one.user, one.resource, one.name, one.operation) for one in decisions}
    return {
        (service.name, right.name)
        for service in _named(services)
        for right in service.rights
        if not any(_is_of(right, service.name, one) for one in used)
    }


def denied(services: Collection[str], decisions: Collection[Decision]) -> set[Decision]:
    """Return the requests of these services' users that the broker has refused."""
    users = {f"starling-{name}" for name in services}
    return {one for one in decisions if one.outcome == "Denied" and one.user in users}


def _named(services: Collection[str]) -> Iterator[Service]:
    return (service for service in load_services(load_catalogue()) if service.name in services)


def _is_of(right: Right, owner: str, one: tuple[str, str, str, str]) -> bool:
    user, kind, name, operation = one
    is_name = name.startswith(right.name) if right.is_prefix else name == right.name
    # The deploy step changes the settings of a topic only after an upgrade; it reads them each time.
    operations = (
        {right.operation.name, "DESCRIBE_CONFIGS"} if right.operation is Operation.ALTER_CONFIGS else {right.operation.name}
    )
    return user == f"starling-{owner}" and kind == KINDS[right.resource] and is_name and operation in operations
