"""Pure core: the least rights of each service at the broker, from `schemas/avro/access.yaml` and the catalogue of stages."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, Final

from starling_common.kafka.topics import Catalogue, Stage
from starling_common.schemas import read_document

PRINCIPAL: Final = "User:starling-{service}"
"""The default pattern of the users' names."""

_INPUTS: Final = "@inputs"
_KEYS: Final = frozenset(
    {"does", "stages", "reads", "writes", "describes", "creates", "groups", "joins", "lags", "commits", "transactions"}
)  # fmt: skip


class Resource(StrEnum):
    """The kind of a resource."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional id"


class Operation(StrEnum):
    """An operation on a resource. To read or to write includes to describe; to alter settings includes to read them."""

    READ = "read"
    WRITE = "write"
    CREATE = "create"
    DESCRIBE = "describe"
    ALTER_CONFIGS = "alter configs"


_DESCRIBING: Final = frozenset({Operation.READ, Operation.WRITE})


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One rule that allows one operation. `is_prefix`: of all resources whose names begin with `name`. `reason`: of the table."""

    resource: Resource
    name: str
    is_prefix: bool
    operation: Operation
    reason: str = field(compare=False)


@dataclass(frozen=True, slots=True)
class Service:
    """A process with a user of its own, and its rights, sorted."""

    name: str
    does: str
    rights: Sequence[Right]


class Principals:
    """The names of the services' users, by a pattern such as `User:starling-{service}`."""

    def __init__(self, pattern: str) -> None:
        """Raises: ValueError for a pattern from which a name of each service does not follow."""
        if pattern.count("{service}") != 1 or re.search(r"[{}]", pattern.replace("{service}", "")):
            raise ValueError(f"{pattern!r} must contain {{service}} once, and no other braces, such as {PRINCIPAL}")
        if not re.match(r"User:.", pattern):
            raise ValueError(f"{pattern!r} must begin with User:, such as {PRINCIPAL}")
        self.pattern = pattern

    def of(self, service: str) -> str:
        """Return the principal of a service, such as `User:starling-ingest`."""
        return self.pattern.replace("{service}", service)

    def user(self, service: str) -> str:
        """Return the name of the user, without its type."""
        return self.of(service).partition(":")[2]


def load_services(catalogue: Catalogue) -> list[Service]:
    """Return every service with its rights, in the order of the file. Raises: ValueError that names the entry and the error."""
    return services_of(read_document("access.yaml")["services"], catalogue)


def services_of(entries: Mapping[str, Mapping[str, Any]], catalogue: Catalogue) -> list[Service]:
    """As `load_services`, from the entries of the file."""
    return [Service(name, str(entry.get("does", "")), _Entry(name, entry, catalogue).rights()) for name, entry in entries.items()]


def chosen(services: Sequence[Service], names: Sequence[str]) -> list[Service]:
    """Return the services of these names; all of them without a name. Raises: ValueError for an unknown name."""
    known = {service.name: service for service in services}
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"there is no service {', '.join(unknown)}; the services are {', '.join(known)}")
    return [known[name] for name in names] if names else list(services)


class _Entry:
    """One entry of the file, resolved against the catalogue."""

    def __init__(self, name: str, entry: Mapping[str, Any], catalogue: Catalogue) -> None:
        self._name = name
        self._entry = entry
        self._topics = list(catalogue.topics)
        self._stages = {stage.name: stage for stage in catalogue.stages}
        if unknown := sorted(entry.keys() - _KEYS):
            raise ValueError(f"access.yaml: {name}: unknown key {', '.join(unknown)}; the keys are {', '.join(sorted(_KEYS))}")

    def rights(self) -> list[Right]:
        own, seen, moved = (self._stages_in(key) for key in ("stages", "lags", "commits"))
        found = [
            *(self._topic(topic, Operation.READ, f"input of {stage.name}") for stage in own for topic in stage.inputs),
            *(self._group(stage.group, Operation.READ, f"joins the group of {stage.name}, or commits to it") for stage in own),
            *(self._topic(topic, Operation.READ, "reads it") for topic in self._topics_in("reads", seen)),
            *(self._topic(topic, Operation.WRITE, "writes it") for topic in self._topics_in("writes", seen)),
            *(self._topic(topic, Operation.DESCRIBE, "requests its offsets") for topic in self._topics_in("describes", seen)),
            *(self._topic(topic, Operation.DESCRIBE, f"its lag of {stage.name}") for stage in seen for topic in stage.inputs),
            *(self._group(stage.group, Operation.DESCRIBE, f"requests the offsets of {stage.name}") for stage in seen),
            *(self._group(stage.group, Operation.READ, f"commits offsets of {stage.name}") for stage in moved),
            *(self._group(group, Operation.DESCRIBE, "names it, never joins it") for group in self._entry.get("groups", ())),
            *(self._group(group, Operation.READ, "joins it, and commits to it") for group in self._entry.get("joins", ())),
        ]
        for topic in self._topics_in("creates", seen):
            found += [
                self._topic(topic, Operation.CREATE, "creates it"),
                self._topic(topic, Operation.DESCRIBE, "counts its partitions and replicas"),
                self._topic(topic, Operation.ALTER_CONFIGS, "reads and raises its limits"),
            ]
        if transactions := self._entry.get("transactions"):
            start, is_prefix = transactions.removesuffix("*"), transactions.endswith("*")
            found.append(Right(Resource.TRANSACTIONAL_ID, start, is_prefix, Operation.WRITE, "its transactions"))
        return _least(found)

    @staticmethod
    def _topic(name: str, operation: Operation, reason: str) -> Right:
        return Right(Resource.TOPIC, name, False, operation, reason)

    @staticmethod
    def _group(name: str, operation: Operation, reason: str) -> Right:
        return Right(Resource.GROUP, name.removesuffix("*"), name.endswith("*"), operation, reason)

    def _topics_in(self, key: str, seen: Sequence[Stage]) -> list[str]:
        found: list[str] = []
        for pattern in self._entry.get(key, ()):
            if pattern == _INPUTS:
                found += [topic for stage in seen for topic in stage.inputs]
            else:
                found += self._matching(key, pattern, self._topics, "topic of topics.yaml")
        return list(dict.fromkeys(found))

    def _stages_in(self, key: str) -> list[Stage]:
        names = [
            name
            for pattern in self._entry.get(key, ())
            for name in self._matching(key, pattern, self._stages, "stage of topics.yaml")
        ]
        return [self._stages[name] for name in dict.fromkeys(names)]

    def _matching(self, key: str, pattern: str, names: Iterable[str], kind: str) -> list[str]:
        found = [name for name in names if fnmatchcase(name, pattern)]
        if not found:
            raise ValueError(f"access.yaml: {self._name}: {key}: {pattern} is no {kind}")
        return found


def _least(rights: Sequence[Right]) -> list[Right]:
    """Return the rights sorted, without repetitions, and without a right to describe that another one includes."""
    distinct = dict.fromkeys(rights)
    described = {(right.resource, right.name, right.is_prefix) for right in distinct if right.operation in _DESCRIBING}
    return sorted(
        right
        for right in distinct
        if right.operation is not Operation.DESCRIBE or (right.resource, right.name, right.is_prefix) not in described
    )
