"""Adapter: checks whether a running part is ready. A check takes about a second at most and never raises."""

import http.client
import logging
import socket
from urllib.parse import urlsplit

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from starling_local.stack.parts.part import CqlProbe, ExitProbe, HttpProbe, KafkaProbe, Probe

_TIMEOUT_SECONDS = 1.0

_SILENT = logging.getLogger("starling_local.probe")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False

CQL_OPTIONS = bytes([0x04, 0, 0, 0, 0x05, 0, 0, 0, 0])
"""Protocol version 4, no flags, stream 0, opcode OPTIONS, empty body."""
_CQL_SUPPORTED = 0x06


def is_ready(probe: Probe) -> bool:
    """Return whether the part answers its probe now."""
    match probe:
        case HttpProbe(url):
            return _http_answers(url)
        case KafkaProbe(brokers):
            return _broker_answers(brokers)
        case CqlProbe(host, port):
            return _cql_answers(host, port)
        case ExitProbe():
            return False  # The supervisor sees the exit of a step itself.


def _http_answers(url: str) -> bool:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT_SECONDS)
    try:
        connection.request("GET", parts.path or "/")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _broker_answers(brokers: str) -> bool:
    host, _, port = brokers.partition(":")
    if not _port_answers(host, int(port)):  # Cheaper than an admin client that cannot connect.
        return False
    client = AdminClient({"bootstrap.servers": brokers, "log_level": 0}, logger=_SILENT)
    try:
        return bool(client.list_topics(timeout=_TIMEOUT_SECONDS).brokers)
    except KafkaException:
        return False


def _cql_answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=_TIMEOUT_SECONDS) as connection:
            connection.sendall(CQL_OPTIONS)
            header = connection.recv(9)
    except OSError:
        return False
    return len(header) > 4 and header[4] == _CQL_SUPPORTED


def _port_answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=_TIMEOUT_SECONDS):
            return True
    except OSError:
        return False
