"""Adapter: clusters of customers, to which a target of the channel `kafka` writes, and the topics in them."""

import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException

from starling_common.http.outbound.addresses import AddressRefused, is_public
from starling_common.kafka.security import connection_config

_GROUP: Final = "starling-feeds-topics"
"""The group of the consumers that request partitions. It is named and never joined."""

_ANSWER_SECONDS: Final = 10.0

Resolve = Callable[[str], Sequence[str]]
"""Host -> its IP addresses. Raises: OSError."""


class TopicUnusable(Exception):
    """The topic cannot be written. `reason`: `topic_missing`, `not_allowed`, `not_connected` or `address_refused`."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def cluster_config(target: Mapping[str, Any], own_brokers: str) -> dict[str, Any]:
    """Return the connection of a target for librdkafka. `own_brokers`: those of the installation, for a target without others."""
    servers = target.get("bootstrap_servers")
    if servers is None:
        return connection_config(own_brokers)
    security = target.get("security") or {}
    found = {
        "security.protocol": security.get("protocol", "plaintext"),
        "sasl.mechanism": security.get("mechanism"),
        "sasl.username": security.get("username"),
        "sasl.password": security.get("password"),
        "ssl.ca.pem": security.get("ca"),
    }
    return {"bootstrap.servers": servers, **{name: value for name, value in found.items() if value is not None}}


def addresses_of(host: str) -> list[str]:
    """Return the IP addresses of a host, by the system's resolver. Raises: OSError."""
    return [str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]


def refuse_private(servers: str, resolve: Resolve = addresses_of) -> None:
    """Check the addresses of `host:port, …`. A broker names further ones, which the network has to guard.

    Raises: AddressRefused, OSError for a name that cannot be resolved.
    """
    for server in servers.split(","):
        host = server.strip().rpartition(":")[0].strip("[]") or server.strip()
        if not all(map(is_public, resolve(host))):
            raise AddressRefused(f"{server.strip()} is in a private network")


def check_topic(target: Mapping[str, Any], own_brokers: str, *, allow_private: bool) -> int:
    """Return the number of partitions of the topic of a target. It is never created. Raises: TopicUnusable with the cure."""
    topic, servers = target["topic"], target.get("bootstrap_servers")
    place = "the cluster of the installation" if servers is None else f"the cluster {servers}"
    if servers is not None and not allow_private:
        try:
            refuse_private(servers)
        except (AddressRefused, OSError) as refused:
            raise TopicUnusable("address_refused", f"{place} is not allowed: {refused}") from refused
    errors: list[KafkaError] = []
    config = {**cluster_config(target, own_brokers), "group.id": _GROUP, "log_level": 0, "error_cb": errors.append}
    try:
        consumer = Consumer(config)
    except KafkaException as cause:  # such as a certificate that is none
        raise TopicUnusable("not_connected", f"{place}: {cause.args[0].str()}: correct `security`") from cause
    try:
        found = consumer.list_topics(topic, timeout=_ANSWER_SECONDS).topics[topic]
    except KafkaException as cause:
        reason = errors[-1].str() if errors else cause.args[0].str()
        raise TopicUnusable("not_connected", f"{place} does not answer: {reason}") from cause
    finally:
        consumer.close()
    if found.error is None and found.partitions:
        return len(found.partitions)
    if found.error is not None and found.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        raise TopicUnusable("not_allowed", f"{place} refuses the topic {topic!r}: grant this user Describe and Write")
    raise TopicUnusable("topic_missing", f"there is no topic {topic!r} in {place}: create it")
