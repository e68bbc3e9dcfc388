"""Adapter: compares the rights of the services with the access control lists of the broker, creates and removes rules."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from starling_common.failures import InstallationFailure
from starling_common.kafka.access.rights import Operation, Principals, Resource, Right, Service

_TIMEOUT_SECONDS: Final = 30.0
_RESOURCES: Final = {
    Resource.TOPIC: ResourceType.TOPIC,
    Resource.GROUP: ResourceType.GROUP,
    Resource.TRANSACTIONAL_ID: ResourceType.TRANSACTIONAL_ID,
}
_OPERATIONS: Final = {
    Operation.READ: AclOperation.READ,
    Operation.WRITE: AclOperation.WRITE,
    Operation.CREATE: AclOperation.CREATE,
    Operation.DESCRIBE: AclOperation.DESCRIBE,
    Operation.ALTER_CONFIGS: AclOperation.ALTER_CONFIGS,
}
_CURES: Final = {
    KafkaError.SECURITY_DISABLED: "the broker has no authorizer: set authorizer.class.name on every broker and controller",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: (
        "this user may not administer access: use a user of super.users, or one with DESCRIBE and ALTER on the cluster"
    ),
}


class AclsFailed(InstallationFailure):
    """The broker did not answer, or refused the request; the message contains the cure."""


class Rule(NamedTuple):
    """An access control list that allows one operation. `host`: `*` for any."""

    principal: str
    resource: ResourceType
    name: str
    pattern: ResourcePatternType
    operation: AclOperation
    host: str = "*"

    def __str__(self) -> str:
        """As a line, such as `User:starling-ingest  write  topic ingest.track`."""
        kind = next((known.value for known, named in _RESOURCES.items() if named is self.resource), self.resource.name.lower())
        end = "*" if self.pattern is ResourcePatternType.PREFIXED else ""
        origin = "" if self.host == "*" else f" from {self.host}"
        return f"{self.principal}  {self.operation.name.lower().replace('_', ' ')}  {kind} {self.name}{end}{origin}"

    def sort_key(self) -> tuple[str, str, str, str]:
        """Return an order: by user, resource, name and operation."""
        return self.principal, self.resource.name, self.name, self.operation.name


class Difference(NamedTuple):
    """What the broker lacks, and what its rules allow beyond the rights of the same users."""

    missing: Sequence[Rule]
    needless: Sequence[Rule]


def rules_of(services: Sequence[Service], principals: Principals) -> list[Rule]:
    """Return the rules of the services."""
    return [_rule(right, principals.of(service.name)) for service in services for right in service.rights]


def difference(admin: AdminClient, services: Sequence[Service], principals: Principals) -> Difference:
    """Compare with the broker. Rules that deny are left out, and so are users of other names. Raises: AclsFailed."""
    wanted, users = rules_of(services, principals), {principals.of(service.name) for service in services}
    known = existing_rules(admin)
    found, needed = set(known), set(wanted)
    return Difference(
        [one for one in wanted if one not in found],
        sorted((one for one in known if one.principal in users and one not in needed), key=Rule.sort_key),
    )


def existing_rules(admin: AdminClient) -> list[Rule]:
    """Return every rule of the broker that allows something. Raises: AclsFailed."""
    # The client returns no rules, and no error, to a user who may not read them, and without an authorizer.
    cluster = _done(lambda: admin.describe_cluster(include_authorized_operations=True, request_timeout=_TIMEOUT_SECONDS).result())
    if AclOperation.DESCRIBE not in (cluster.authorized_operations or ()):
        raise AclsFailed(_CURES[KafkaError.CLUSTER_AUTHORIZATION_FAILED])
    none: Any = None  # any name, principal and host
    anything = AclBindingFilter(
        ResourceType.ANY, none, ResourcePatternType.ANY, none, none, AclOperation.ANY, AclPermissionType.ANY
    )
    found = _done(lambda: admin.describe_acls(anything, request_timeout=_TIMEOUT_SECONDS).result())
    if not found:
        _check_authorizer(admin)
    return [
        Rule(one.principal, one.restype, one.name, one.resource_pattern_type, one.operation, one.host)
        for one in found
        if one.permission_type is AclPermissionType.ALLOW
    ]


def create(admin: AdminClient, missing: Sequence[Rule]) -> None:
    """Create the rules. Raises: AclsFailed that names the first rule that was refused."""
    if missing:
        created = [
            AclBinding(one.resource, one.name, one.pattern, one.principal, one.host, one.operation, AclPermissionType.ALLOW)
            for one in missing
        ]
        _all_done(missing, admin.create_acls(created, request_timeout=_TIMEOUT_SECONDS).values())


def remove(admin: AdminClient, needless: Sequence[Rule]) -> None:
    """Remove the rules. Raises: AclsFailed that names the first rule that was refused."""
    if needless:
        _all_done(needless, admin.delete_acls([_filter(one) for one in needless], request_timeout=_TIMEOUT_SECONDS).values())


def _check_authorizer(admin: AdminClient) -> None:
    """Raise AclsFailed if the broker has no authorizer: the removal of a rule that does not exist fails then."""
    none = Rule("User:-", ResourceType.TOPIC, "-", ResourcePatternType.LITERAL, AclOperation.READ)
    for answer in admin.delete_acls([_filter(none)], request_timeout=_TIMEOUT_SECONDS).values():
        try:
            answer.result()
        except KafkaException as cause:
            if cause.args[0].code() == KafkaError.SECURITY_DISABLED:
                raise AclsFailed(_CURES[KafkaError.SECURITY_DISABLED]) from cause


def _rule(right: Right, principal: str) -> Rule:
    pattern = ResourcePatternType.PREFIXED if right.is_prefix else ResourcePatternType.LITERAL
    return Rule(principal, _RESOURCES[right.resource], right.name, pattern, _OPERATIONS[right.operation])


def _filter(rule: Rule) -> AclBindingFilter:
    return AclBindingFilter(
        rule.resource, rule.name, rule.pattern, rule.principal, rule.host, rule.operation, AclPermissionType.ALLOW
    )


def _all_done(rules: Sequence[Rule], answers: Iterable[Any]) -> None:
    for rule, answer in zip(rules, answers, strict=True):
        _done(answer.result, f"{rule}: ")


def _done(call: Callable[[], Any], place: str = "") -> Any:
    try:
        return call()
    except KafkaException as cause:
        error = cause.args[0]
        cure = _CURES.get(error.code())
        # The text of a refusal is the broker's whole request.
        raise AclsFailed(f"{place}{cure or f'{error.str()}: check STARLING_KAFKA__BROKERS and its security'}") from cause
