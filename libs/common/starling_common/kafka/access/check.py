"""Adapter: whether the broker answers and grants a process the rights that it needs, asked before the process starts its work.

A process with the user of another one would otherwise fail at its first record, end, and be started again without end; one without
a broker would answer no probe. It stays up and is not ready instead: the reason is in its log and in `/readyz`, and it goes on as
soon as the broker answers and grants the rights.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclOperation
from prometheus_client import CollectorRegistry

from starling_common.kafka.access.rights import Operation, Resource, load_services
from starling_common.kafka.clients import committed, consumer_config
from starling_common.kafka.security import connection_config, handshake_failure, kafka_security
from starling_common.kafka.topics import load_catalogue
from starling_common.settings import KafkaSecurity, SecurityProtocol
from starling_common.telemetry.health import HealthServer
from starling_common.telemetry.logs import log

_ANSWER_SECONDS: Final = 10.0
_SERVING_SECONDS: Final = 2.0
"""The delay of a process that serves without the broker."""
_AGAIN_SECONDS: Final = 3.0
_NO_NAMES: Final[Mapping[str, str]] = MappingProxyType({})
_OPERATIONS: Final = {Operation.READ: AclOperation.READ, Operation.WRITE: AclOperation.WRITE}
_REFUSED: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_NOT_KNOWN: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})  # noqa: SLF001 - the library's public constants


class Needs(NamedTuple):
    """The rights of a service: topic -> operations, and the names of consumer groups."""

    service: str
    topics: Mapping[str, Sequence[Operation]]
    groups: Sequence[str]


def needs_of(service: str, names: Mapping[str, str] = _NO_NAMES) -> Needs:
    """Return the rights of a service in `access.yaml`. `names`: name of a topic or group there -> its name in this process."""
    found = next(one for one in load_services(load_catalogue()) if one.name == service)
    topics: dict[str, list[Operation]] = {}
    for right in found.rights:
        if right.resource is Resource.TOPIC:
            topics.setdefault(names.get(right.name, right.name), []).append(right.operation)
    # A right to several groups has the beginning of their names, which is no group that could be asked for.
    groups = [
        names.get(right.name, right.name) for right in found.rights if right.resource is Resource.GROUP and not right.is_prefix
    ]
    return Needs(service, topics, groups)


def is_refused(cause: KafkaException) -> bool:
    """Return whether the broker refuses the request because of the rights of the user."""
    return cause.args[0].code() in _REFUSED


def cure(service: str, security: KafkaSecurity | None = None) -> str:
    """Return what an operator does about a refused user."""
    known = security or kafka_security()
    user = "the user without a name" if known.sasl_username is None else f"the user {known.sasl_username}"
    if known.sasl_username is None and known.ssl_certificate_file is not None:
        user = f"the user of the certificate {known.ssl_certificate_file}"
    return (
        f"{user} is not that of {service}, or its rights are missing: check STARLING_KAFKA__SASL_USERNAME or the certificate, or "
        f"run `starling deploy acls --service {service} --apply`"
    )


def await_access(needs: Needs, brokers: str, address: tuple[str, int], *, serves_without_broker: bool = False) -> None:
    """Return when the broker answers and grants the rights. Blocks while it refuses one.

    `address`: where `/readyz` reports the reason meanwhile. `serves_without_broker`: return although the broker does not answer,
    because the process has something to do without it, and reports it itself. Connections without a password and TLS have no user
    and no rights.
    """
    problem = _problem(needs, brokers, serves_without_broker=serves_without_broker)
    if problem is None:
        return
    reasons: dict[str, str | None] = {}
    health = HealthServer(address, CollectorRegistry(), alive=dict, ready=lambda: reasons)
    health.start()
    while problem is not None:
        if problem != reasons.get("broker"):
            log(__name__).error("not_ready", reason=problem)
        reasons["broker"] = problem
        time.sleep(_AGAIN_SECONDS)
        problem = _problem(needs, brokers, serves_without_broker=serves_without_broker)
    health.stop()
    log(__name__).info("access_granted")


def _problem(needs: Needs, brokers: str, *, serves_without_broker: bool) -> str | None:
    """Return why the broker does not answer, or which rights it refuses, with the cure; None if the process can start."""
    failures: list[KafkaError] = []
    try:
        if kafka_security().security_protocol is not SecurityProtocol.PLAINTEXT:
            missing = [*_missing_of_topics(needs, brokers, failures), *_refused_groups(needs, brokers)]
            return f"the broker refuses {_listed(missing)}: {cure(needs.service)}" if missing else None
        _await_answer(brokers, failures, _SERVING_SECONDS if serves_without_broker else _ANSWER_SECONDS)
    except KafkaException as cause:
        refused = handshake_failure(brokers) or next((error.str() for error in failures if error.code() in _NOT_KNOWN), None)
        if refused is not None:
            return (
                f"the broker does not accept the connection ({refused}): check STARLING_KAFKA__SASL_USERNAME, its password and "
                "the certificates"
            )
        found = [error.str() for error in failures if error.code() != KafkaError._ALL_BROKERS_DOWN]  # noqa: SLF001
        last = found[-1] if found else cause.args[0].str()
        reason = f"the broker {brokers} does not answer ({last}): check STARLING_KAFKA__BROKERS, the network, and the broker"
        if not serves_without_broker:
            return reason
        log(__name__).warning("broker_unavailable", reason=reason)
    return None


def _await_answer(brokers: str, failures: list[KafkaError], seconds: float) -> None:
    """Return when the broker has answered. Raises: KafkaException without an answer; `failures` then has the client's errors."""
    config: dict[str, Any] = {**connection_config(brokers), "log_level": 0, "error_cb": failures.append}
    admin = AdminClient(config)
    try:
        admin.list_topics(timeout=seconds)
    finally:
        admin.poll(0)


def _missing_of_topics(needs: Needs, brokers: str, failures: list[KafkaError]) -> list[str]:
    """Return the refused operations. Raises: KafkaException without an answer; `failures` then has the errors of the client."""
    config: dict[str, Any] = {**connection_config(brokers), "log_level": 0, "error_cb": failures.append}
    admin = AdminClient(config)
    collection = TopicCollection(list(needs.topics))
    requested: Mapping[str, Future[Any]] = admin.describe_topics(
        collection, include_authorized_operations=True, request_timeout=_ANSWER_SECONDS
    )
    missing = []
    for topic, answer in requested.items():
        while not answer.done() and not any(error.code() in _NOT_KNOWN for error in failures):
            admin.poll(0.05)
        if not answer.done():
            raise KafkaException(failures[-1])
        missing += _missing(topic, answer, needs.topics[topic])
    return missing


def _missing(topic: str, answer: "Future[Any]", operations: Iterable[Operation]) -> list[str]:
    try:
        granted = answer.result().authorized_operations
    except KafkaException as cause:
        if is_refused(cause):
            return [f"{operation} {topic}" for operation in operations]
        if cause.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return []  # the process reports missing topics itself
        raise
    wanted = [operation for operation in operations if operation in _OPERATIONS]
    return [f"{operation} {topic}" for operation in wanted if granted and _OPERATIONS[operation] not in granted]


def _refused_groups(needs: Needs, brokers: str) -> list[str]:
    place = TopicPartition(next(iter(needs.topics)), 0)
    # A group is asked by a consumer, because the admin client ends the process while a coordinator moves (librdkafka issue 5040).
    with ThreadPoolExecutor(max(1, len(needs.groups))) as threads:
        refused = threads.map(lambda group: _is_group_refused(brokers, group, place), needs.groups)
        return [f"group {group}" for group, is_refused in zip(needs.groups, refused, strict=True) if is_refused]


def _is_group_refused(brokers: str, group: str, place: TopicPartition) -> bool:
    consumer = Consumer(consumer_config(brokers, group, log_level=0))
    try:
        committed(consumer, [place], _ANSWER_SECONDS)
    except KafkaException as cause:
        return bool(cause.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED)
    finally:
        consumer.close()
    return False


def _listed(missing: Sequence[str]) -> str:
    most = 5
    more = f" and {len(missing) - most} more" if len(missing) > most else ""
    return f"{', '.join(missing[:most])}{more}"
