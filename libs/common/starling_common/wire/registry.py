"""Adapter: the schema registry over its Confluent-compatible API. Services only look up; the deploy step registers."""

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from starling_common.wire.codec import Codec, UnknownSchema, schema_text


class RegistryUnavailable(Exception):
    """The registry did not answer, or answered with a fault of its own; the same call may work later."""


class SchemaMissing(LookupError):
    """The subject does not hold our schema: the deploy step was not run for this version."""


class Registry:
    """Looks schemas up and registers them. Holds no connection between two calls."""

    def __init__(self, url: str) -> None:
        """`url` is the Confluent-compatible root, such as `http://host:8081/apis/ccompat/v7`."""
        self._url = url

    def codec(self, topic: str, name: str) -> Codec:
        """A codec for the values of a topic.

        Raises: SchemaMissing, RegistryUnavailable.
        """
        subject = f"{topic}-value"
        with self._client() as client:
            try:
                found = client.lookup_schema(subject, Schema(schema_text(name), "AVRO"))
            except SchemaRegistryError as error:
                if error.http_status_code != 404:
                    raise
                raise SchemaMissing(f"{subject} does not hold schema {name}: run `python -m starling_common.deploy`") from error
        if found.schema_id is None:
            raise SchemaMissing(f"{subject}: the registry gave no id for schema {name}")
        return Codec(name, found.schema_id, self.schema)

    def schema(self, schema_id: int) -> str:
        """The schema with that id, as JSON. Raises: UnknownSchema, RegistryUnavailable."""
        with self._client() as client:
            try:
                text = client.get_schema(schema_id).schema_str
            except SchemaRegistryError as error:
                if error.http_status_code != 404:
                    raise
                raise UnknownSchema(schema_id) from error
        if text is None:
            raise UnknownSchema(schema_id)
        return text

    def newest(self, topic: str) -> tuple[int, str]:
        """Id and JSON of the newest schema registered for the values of a topic.

        Raises: SchemaMissing, RegistryUnavailable.
        """
        subject = f"{topic}-value"
        with self._client() as client:
            try:
                found = client.get_latest_version(subject)
            except SchemaRegistryError as error:
                if error.http_status_code != 404:
                    raise
                raise SchemaMissing(f"{subject} holds no schema: run `python -m starling_common.deploy`") from error
        if found.schema_id is None or found.schema.schema_str is None:
            raise SchemaMissing(f"{subject}: the registry gave no newest schema")
        return found.schema_id, found.schema.schema_str

    def register(self, subject: str, name: str, compatibility: str) -> int:
        """Register a schema file and set the subject's compatibility. Raises: ValueError if the registry refuses it."""
        with self._client() as client:
            client.set_compatibility(subject, compatibility)
            try:
                return client.register_schema(subject, Schema(schema_text(name), "AVRO"))
            except SchemaRegistryError as error:
                if error.http_status_code == 409:
                    problem = f"is not {compatibility} with what is registered"
                elif error.http_status_code == 422:
                    problem = "is no schema that the registry understands"
                else:
                    raise
                raise ValueError(f"{subject}: schema {name} {problem}: {error}") from error

    @contextmanager
    def _client(self) -> Iterator[SchemaRegistryClient]:
        # One client a call: calls are rare (a codec remembers what it was told), and nothing is left open between them.
        try:
            with SchemaRegistryClient({"url": self._url, "max.retries": 2, "timeout": 10}) as client:
                yield client
        except (SchemaMissing, UnknownSchema, ValueError):
            raise
        except Exception as cause:
            raise RegistryUnavailable(f"the schema registry at {self._url} does not answer: {cause}") from cause
