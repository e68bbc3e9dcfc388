"""Pure core: the targets of feeds: digests in a chat, and topics of Kafka."""

from collections.abc import Mapping
from typing import Final

from starling_campaigns.bounds import (
    LONGEST_DIGEST_SECONDS,
    MAX_CERTIFICATES_CHARACTERS,
    MAX_DIGEST_TITLE_CHARACTERS,
    MAX_TARGET_TEXT_CHARACTERS,
    SHORTEST_DIGEST_SECONDS,
)
from starling_campaigns.definitions.targets.field import Kind, TargetField, choice, pattern
from starling_campaigns.definitions.targets.values import LINE, SEGMENTS, URL

_TITLE: Final = pattern(
    r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]+$",
    MAX_DIGEST_TITLE_CHARACTERS,
    f"one line of text, at most {MAX_DIGEST_TITLE_CHARACTERS} characters",
)
_INTERVAL: Final = Kind(
    lambda value: type(value) is int and SHORTEST_DIGEST_SECONDS <= value <= LONGEST_DIGEST_SECONDS,
    {"type": "integer", "minimum": SHORTEST_DIGEST_SECONDS, "maximum": LONGEST_DIGEST_SECONDS},
    f"a whole number of seconds from {SHORTEST_DIGEST_SECONDS} to {LONGEST_DIGEST_SECONDS}",
)
BROKERS: Final = pattern("^[A-Za-z0-9.:,_-]+$", MAX_TARGET_TEXT_CHARACTERS, "host:port, comma separated")
_TOPIC: Final = pattern("^[A-Za-z0-9._-]+$", 249, "the name of a topic")
_CERTIFICATES: Final = pattern(
    r"^(-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----\s*)+$",
    MAX_CERTIFICATES_CHARACTERS,
    "certificates in PEM",
)

DIGEST_FIELDS: Final[Mapping[str, TargetField]] = {
    # The address of an incoming webhook is its only credential.
    "url": TargetField(URL, secret=True),
    "segments": TargetField(SEGMENTS),
    "title": TargetField(_TITLE, required=False),
    "interval_seconds": TargetField(_INTERVAL, required=False),
}
"""The fields of a chat."""
KAFKA_FIELDS: Final[Mapping[str, TargetField]] = {
    "topic": TargetField(_TOPIC),
    "segments": TargetField(SEGMENTS),
    "format": TargetField(choice("avro", "json"), required=False),
    "bootstrap_servers": TargetField(BROKERS, required=False),
    "security": TargetField(
        None,
        required=False,
        fields={
            "protocol": TargetField(choice("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")),
            "mechanism": TargetField(choice("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"), required=False),
            "username": TargetField(LINE, required=False),
            "password": TargetField(LINE, required=False, secret=True),
            "ca": TargetField(_CERTIFICATES, required=False),
        },
        variants={
            "plaintext": {},
            "ssl": {"ca": False},
            "sasl_plaintext": {"mechanism": True, "username": True, "password": True},
            "sasl_ssl": {"mechanism": True, "username": True, "password": True, "ca": False},
        },
    ),
}
"""The fields of a topic. `bootstrap_servers` are missing for the cluster of the installation."""
