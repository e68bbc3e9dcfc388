"""The settings that all services share. The `settings.py` of each service extends them; names include the unit.

They are read from the environment: `STARLING_KAFKA__BROKERS`, `STARLING_REGISTRY__URL` (two underscores separate nested names).
"""

from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

FROM_ENVIRONMENT: Final = SettingsConfigDict(
    env_prefix="STARLING_", env_nested_delimiter="__", frozen=True, extra="ignore", hide_input_in_errors=True
)
"""The configuration of each model that is read from the environment. Its errors name no input, which can be a password."""


class Clock(StrEnum):
    """The source of stream time: the wall clock, or the highest event time of a partition."""

    WALL = "wall"
    EVENT = "event"


DuplicateWindowHours = Annotated[
    int,
    Field(ge=24, le=2_160, description="stream time within which a repeated message id of a user is a duplicate"),
]
"""Read by the normalizer, and by the Spark job that runs its stages again."""


GroupFailureSeconds = Annotated[
    float,
    Field(
        ge=1,
        description="time after which liveness fails if the broker refuses requests of the consumer group and answers others",
    ),
]
"""Read by every process that belongs to a consumer group."""


HistoryDays = Annotated[
    int,
    Field(
        ge=0,
        le=1_095,
        description="days for which events of users are readable in the API; 0: none, and an event costs a tenth less",
    ),
]
"""Read by the projector, which stores the events, and by the API. A row keeps the lifetime that it was written with."""


class SecurityProtocol(StrEnum):
    """How connections to the broker are secured: TLS, a password, both, or neither."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_password(self) -> bool:
        """Return whether the client sends a user name and a password."""
        return self.value.startswith("SASL")

    @property
    def has_tls(self) -> bool:
        """Return whether the connection is encrypted."""
        return self.value.endswith("SSL")


class SaslMechanism(StrEnum):
    """How a client proves that it has the password."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"


class KafkaSecurity(BaseModel):
    """The security of connections to the broker. Files are in PEM format."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    security_protocol: Annotated[SecurityProtocol, Field(description="security of the connections")] = SecurityProtocol.PLAINTEXT
    sasl_mechanism: Annotated[SaslMechanism | None, Field(description="required with SASL_PLAINTEXT and SASL_SSL")] = None
    sasl_username: Annotated[str | None, Field(description="user name of this service; required with SASL")] = None
    sasl_password: Annotated[SecretStr | None, Field(description="its password; required with SASL")] = None
    ssl_ca_file: Annotated[
        str | None, Field(description="certificates of the authorities that sign those of the brokers; unset: those of the system")
    ] = None
    ssl_certificate_file: Annotated[str | None, Field(description="certificate of this service, for brokers that require one")] = (
        None
    )
    ssl_key_file: Annotated[str | None, Field(description="private key of the certificate, in PKCS 8")] = None
    ssl_key_password: Annotated[SecretStr | None, Field(description="password of the private key")] = None
    ssl_check_hostname: Annotated[bool, Field(description="compare the host name with the certificate of the broker")] = True

    @model_validator(mode="after")
    def _complete(self) -> Self:
        protocol = self.security_protocol
        password = {
            "sasl_mechanism": self.sasl_mechanism,
            "sasl_username": self.sasl_username,
            "sasl_password": self.sasl_password,
        }
        tls = {
            "ssl_ca_file": self.ssl_ca_file,
            "ssl_certificate_file": self.ssl_certificate_file,
            "ssl_key_file": self.ssl_key_file,
        }
        for name, value in password.items():
            if protocol.has_password and value is None:
                raise ValueError(f"{protocol} needs {name}")
            if not protocol.has_password and value is not None:
                raise ValueError(f"{name} has no effect with {protocol}: set security_protocol to SASL_SSL")
        for name, value in tls.items():
            if not protocol.has_tls and value is not None:
                raise ValueError(f"{name} has no effect with {protocol}: set security_protocol to SASL_SSL or SSL")
        if (self.ssl_certificate_file is None) != (self.ssl_key_file is None):
            raise ValueError("ssl_certificate_file and ssl_key_file belong together: set both or neither")
        return self


class Kafka(KafkaSecurity):
    """The connection to the broker."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    brokers: Annotated[str, Field(description="host:port, comma separated", examples=["kafka-0:9092,kafka-1:9092"])]


class RegistrySecurity(BaseModel):
    """The security of connections to the schema registry. The scheme of its URL decides about TLS."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    username: Annotated[str | None, Field(description="user name for basic authentication")] = None
    password: Annotated[SecretStr | None, Field(description="password of the user")] = None
    ssl_ca_file: Annotated[
        str | None, Field(description="certificates of the authorities that sign that of the registry; unset: those of the system")
    ] = None
    ssl_certificate_file: Annotated[
        str | None, Field(description="certificate of this service, for a registry that requires one")
    ] = None
    ssl_key_file: Annotated[str | None, Field(description="private key of the certificate")] = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.username is None) != (self.password is None):
            raise ValueError("username and password belong together: set both or neither")
        if (self.ssl_certificate_file is None) != (self.ssl_key_file is None):
            raise ValueError("ssl_certificate_file and ssl_key_file belong together: set both or neither")
        return self


class SchemaRegistry(RegistrySecurity):
    """The connection to the schema registry."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: Annotated[
        str, Field(description="root of the Confluent-compatible API", examples=["http://registry:8081/apis/ccompat/v7"])
    ]


class Cassandra(BaseModel):
    """The connection to Cassandra."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    contact_points: Annotated[str, Field(description="hosts, comma separated", examples=["cassandra-0,cassandra-1"])]
    port: Annotated[int, Field(gt=0, lt=65_536, description="port of the native protocol, the same on every host")] = 9042
    keyspace: Annotated[str, Field(pattern="^[a-z][a-z0-9_]{0,47}$", description="keyspace of all tables")] = "starling"
    replication_factor: Annotated[int, Field(ge=1, le=7, description="used only when the deploy step creates the keyspace")] = 1
    user: Annotated[str | None, Field(description="user name; unset: no authentication")] = None
    password: Annotated[SecretStr | None, Field(description="password of the user")] = None
    ssl: Annotated[bool, Field(description="use TLS")] = False
    ssl_ca_file: Annotated[
        str | None, Field(description="certificates of the authorities that sign those of the nodes; unset: those of the system")
    ] = None
    ssl_certificate_file: Annotated[str | None, Field(description="certificate of this service, for nodes that require one")] = None
    ssl_key_file: Annotated[str | None, Field(description="private key of the certificate")] = None
    ssl_key_password: Annotated[SecretStr | None, Field(description="password of the private key")] = None
    ssl_check_hostname: Annotated[bool, Field(description="compare the address of a node with its certificate")] = True

    @model_validator(mode="after")
    def _complete(self) -> Self:
        files = {
            "ssl_ca_file": self.ssl_ca_file,
            "ssl_certificate_file": self.ssl_certificate_file,
            "ssl_key_file": self.ssl_key_file,
        }
        for name, value in files.items():
            if value is not None and not self.ssl:
                raise ValueError(f"{name} has no effect without ssl: set it to true")
        if (self.ssl_certificate_file is None) != (self.ssl_key_file is None):
            raise ValueError("ssl_certificate_file and ssl_key_file belong together: set both or neither")
        return self


class SecretKeys(BaseModel):
    """The keys that encrypt stored secrets, of the API and of what uses the secrets. Both unset: no secret can be stored."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    keys: Annotated[
        SecretStr | None,
        Field(description="id=key, comma separated; a key is the base64 of 32 bytes; the first one encrypts, all of them decrypt"),
    ] = None
    keys_file: Annotated[str | None, Field(description="path of a file with the keys, one id=key a line, instead of keys")] = None


class LinkKeys(BaseModel):
    """The keys of the links in messages, of the channels that write them and of the tracker that reads them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    keys: Annotated[
        SecretStr | None,
        Field(
            description="id=key, comma separated; a key is the base64 of 32 bytes; the first one writes links, all of them read; "
            "a link works as long as its key is listed"
        ),
    ] = None
    keys_file: Annotated[str | None, Field(description="path of a file with the keys, one id=key a line, instead of keys")] = None


class TraceSettings(BaseModel):
    """Traces of OpenTelemetry, of the services between the request of an event and the message of a webhook."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    endpoint: Annotated[
        str | None,
        Field(
            pattern="^https?://",
            description="address of a collector for OTLP over HTTP; unset: no traces",
            examples=["http://collector:4318"],
        ),
    ] = None
    ratio: Annotated[
        float, Field(gt=0, le=1, description="share of the traces that is recorded; the same value in every service")
    ] = 0.01


class Http(BaseModel):
    """The HTTP address of the process; workers serve only `/healthz`, `/readyz` and `/metrics`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: Annotated[str, Field(description="address to bind; 0.0.0.0 binds every interface")] = "127.0.0.1"
    port: Annotated[int, Field(gt=0, lt=65_536, description="port to bind")]


class ServiceSettings(BaseSettings):
    """The settings of every service. Values that differ between installations have no default."""

    model_config = FROM_ENVIRONMENT

    kafka: Kafka
    registry: SchemaRegistry
    http: Http
    clock: Annotated[Clock, Field(description="source of stream time; the same value in every service")] = Clock.WALL
    instance_id: Annotated[str, Field(description="stable, unique name of this process, such as the name of its pod", min_length=1)]
    log_level: Annotated[str, Field(pattern="^(DEBUG|INFO|WARNING|ERROR)$", description="lowest level that is logged")] = "INFO"
