"""Adapter: the schema registry, through its Confluent-compatible API. Services read schemas; the deploy step registers them."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from time import monotonic
from typing import Final

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError
from pydantic_settings import BaseSettings

from starling_common.failures import InstallationFailure
from starling_common.settings import FROM_ENVIRONMENT, RegistrySecurity
from starling_common.wire.codec import Codec, UnknownSchema, schema_text

_UNKNOWN_SECONDS: Final = 300.0
"""`UnknownSchema` names this time: a record that is replayed before is refused again."""
_MOST_UNKNOWN: Final = 10_000


class _Environment(BaseSettings):
    model_config = FROM_ENVIRONMENT

    registry: RegistrySecurity = RegistrySecurity()


@lru_cache(maxsize=1)
def registry_security() -> RegistrySecurity:
    """Return the security of this process's connections, from its environment. Raises: ValidationError."""
    return _Environment().registry


def _security(url: str) -> dict[str, object]:
    security = registry_security()
    found: dict[str, object] = {
        "basic.auth.user.info": None
        if security.password is None
        else f"{security.username}:{security.password.get_secret_value()}",
        "ssl.ca.location": security.ssl_ca_file,
        "ssl.certificate.location": security.ssl_certificate_file,
        "ssl.key.location": security.ssl_key_file,
    }
    present = {name: value for name, value in found.items() if value is not None}
    # A client without TLS would still read every authority of the system, 33 ms of processor time for each call.
    without_tls = all(one.strip().lower().startswith("http://") for one in url.split(","))
    return {"ssl.ca.location": False} | present if without_tls else present


class RegistryUnavailable(InstallationFailure):
    """The registry did not respond, or responded with an internal error. The same call can succeed later."""


class SchemaMissing(InstallationFailure, LookupError):
    """The subject lacks the required schema: the deploy step was not run for this version."""


class Registry:
    """A client of the schema registry. It keeps no connection open between calls.

    An id that the registry does not know is looked up again after five minutes: each record of a broken producer would cost a
    request.
    """

    def __init__(self, url: str) -> None:
        """Create the client; `url` is the Confluent-compatible root, such as `http://host:8081/apis/ccompat/v7`."""
        self._url = url
        self._unknown_until: dict[int, float] = {}

    def codec(self, topic: str, name: str) -> Codec:
        """Return a codec for the values of a topic.

        Raises: SchemaMissing, RegistryUnavailable.
        """
        subject = f"{topic}-value"
        with self._client() as client:
            try:
                found = client.lookup_schema(subject, Schema(schema_text(name), "AVRO"))
            except SchemaRegistryError as error:
                if error.http_status_code != 404:
                    raise
                raise SchemaMissing(f"{subject} lacks schema {name}: run `python -m starling_common.deploy`") from error
        if found.schema_id is None:
            raise SchemaMissing(f"{subject}: the registry returned no id for schema {name}")
        return Codec(name, found.schema_id, self.schema)

    def schema(self, schema_id: int) -> str:
        """Return the schema with that id as JSON. Raises: UnknownSchema, RegistryUnavailable."""
        if monotonic() < self._unknown_until.get(schema_id, 0.0):
            raise UnknownSchema(schema_id)
        with self._client() as client:
            try:
                text = client.get_schema(schema_id).schema_str
            except SchemaRegistryError as error:
                if error.http_status_code != 404:
                    raise
                self._note_unknown(schema_id)
                raise UnknownSchema(schema_id) from error
        if text is None:
            raise UnknownSchema(schema_id)
        return text

    def newest(self, topic: str) -> tuple[int, str]:
        """Return id and JSON of the latest schema registered for the values of a topic.

        Raises: SchemaMissing, RegistryUnavailable.
        """
        subject = f"{topic}-value"
        with self._client() as client:
            try:
                found = client.get_latest_version(subject)
            except SchemaRegistryError as error:
                if error.http_status_code != 404:
                    raise
                raise SchemaMissing(f"{subject} has no schema: run `python -m starling_common.deploy`") from error
        if found.schema_id is None or found.schema.schema_str is None:
            raise SchemaMissing(f"{subject}: the registry returned no latest schema")
        return found.schema_id, found.schema.schema_str

    def register(self, subject: str, name: str, compatibility: str) -> int:
        """Register a schema file and set the subject's compatibility. Raises: ValueError if the registry refuses it."""
        with self._client() as client:
            client.set_compatibility(subject, compatibility)
            try:
                return client.register_schema(subject, Schema(schema_text(name), "AVRO"))
            except SchemaRegistryError as error:
                if error.http_status_code == 409:
                    problem = f"is not {compatibility} compatible with the registered schemas"
                elif error.http_status_code == 422:
                    problem = "is invalid according to the registry"
                else:
                    raise
                raise ValueError(f"{subject}: schema {name} {problem}: {error}") from error

    def _note_unknown(self, schema_id: int) -> None:
        if len(self._unknown_until) >= _MOST_UNKNOWN:
            self._unknown_until.clear()
        self._unknown_until[schema_id] = monotonic() + _UNKNOWN_SECONDS

    @contextmanager
    def _client(self) -> Iterator[SchemaRegistryClient]:
        # One client per call: calls are rare because codecs cache schemas, and no connection stays open between them.
        try:
            with SchemaRegistryClient({"url": self._url, "max.retries": 2, "timeout": 10, **_security(self._url)}) as client:
                yield client
        except (SchemaMissing, UnknownSchema, ValueError):
            raise
        except Exception as cause:
            raise RegistryUnavailable(f"the schema registry at {self._url} does not respond: {cause}") from cause
