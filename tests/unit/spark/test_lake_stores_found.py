"""Which client Iceberg uses for a table, and with which settings; objects of the JVM are replaced."""

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from starling_spark.lakehouse.stores import files
from starling_spark.lakehouse.stores.discovery import Stores
from starling_spark.lakehouse.stores.translation import DIRECTORY, FileStore, StoreUnknown

HADOOP, S3 = "org.apache.iceberg.hadoop.HadoopFileIO", "org.apache.iceberg.aws.s3.S3FileIO"
RESOLVING = "org.apache.iceberg.io.ResolvingFileIO"
DEFAULTS = {"fs.s3a.threads.max": "96", "fs.s3a.assumed.role.session.duration": "30m"}


class Configuration:
    """Settings of Hadoop."""

    def __init__(self, settings: Mapping[str, str] | bool) -> None:
        self.settings = dict(settings) if isinstance(settings, Mapping) else {}
        self.reads = 0

    def addResource(self, name: str) -> None:  # noqa: N802 - of Java
        assert name == "core-default.xml"
        self.settings |= DEFAULTS

    def getPropsWithPrefix(self, prefix: str) -> dict[str, str]:  # noqa: N802 - of Java
        self.reads += 1
        return {key.removeprefix(prefix): value for key, value in self.settings.items() if key.startswith(prefix)}

    def get(self, key: str) -> str | None:
        return self.settings.get(key)


class Files:
    """A client of Iceberg. `by_scheme`: the class that a resolving client takes."""

    def __init__(self, name: str, given: Any = None, credentials: Any = (), by_scheme: str = "") -> None:
        self.getClass = lambda: SimpleNamespace(getName=lambda: name)
        self.ioClass = lambda _: SimpleNamespace(getName=lambda: by_scheme)
        self.getConf = self.properties = lambda: given
        self.credentials = lambda: credentials


def found(location: str, client: Files, stores: Stores | None = None) -> FileStore:
    properties = {"format-version": "2", "write.object-storage.enabled": "false"}
    table = SimpleNamespace(location=lambda: location, properties=lambda: properties, io=lambda: client)
    return (stores or Stores()).of(jvm(), table)


def jvm() -> Any:
    mapper = SimpleNamespace(ObjectMapper=lambda: SimpleNamespace(writeValueAsString=json.dumps))
    hadoop = SimpleNamespace(hadoop=SimpleNamespace(conf=SimpleNamespace(Configuration=Configuration)))
    databind = SimpleNamespace(jackson=SimpleNamespace(databind=mapper))
    return SimpleNamespace(com=SimpleNamespace(fasterxml=databind), org=SimpleNamespace(apache=hadoop))


@pytest.mark.parametrize("location", ["/lake/t", "file:/lake/t", "file:///lake/t"])
def test_a_directory_needs_no_settings(location: str) -> None:
    assert found(location, Files("any")) == DIRECTORY
    files.probe(DIRECTORY, location)


def test_settings_of_hadoop_that_differ_from_its_defaults_are_read_once() -> None:
    configuration, stores = Configuration({**DEFAULTS, "fs.s3a.endpoint.region": "r", "fs.defaultFS": "x"}), Stores()
    for _ in range(2):
        store = found("s3a://lake/t", Files(HADOOP, configuration), stores)
        assert store.options == (("region", "r"),)
    assert configuration.reads == 1
    with pytest.raises(StoreUnknown, match=r"assumed\.role\.session\.duration"):
        found("s3a://lake/t", Files(HADOOP, Configuration({"fs.s3a.assumed.role.session.duration": "1h"})))


def test_a_catalog_may_give_other_credentials_each_time() -> None:
    stores, found_keys = Stores(), []
    for key in ("a", "b"):
        config = {"s3.access-key-id": key, "s3.secret-access-key": "s"}
        credentials = [SimpleNamespace(prefix=lambda: "s3://lake", config=lambda config=config: config)]
        client = Files(RESOLVING, {"client.region": "r"}, credentials, by_scheme=S3)
        found_keys.append(dict(found("s3://lake/t", client, stores).options or ())["access_key"])
    assert found_keys == ["a", "b"]


@pytest.mark.parametrize(
    ("location", "client", "why"),
    [
        ("gs://lake/t", Files("org.apache.iceberg.gcp.gcs.GCSFileIO"), "cannot write to gs://"),
        ("hdfs://name/t", Files(HADOOP), "cannot write to hdfs://"),
        ("s3://lake/t", Files("com.example.OwnFileIO"), r"the client com\.example\.OwnFileIO is not supported"),
    ],
)
def test_other_stores_and_clients_are_not_supported(location: str, client: Files, why: str) -> None:
    with pytest.raises(StoreUnknown, match=why):
        found(location, client)


def test_a_client_belongs_to_a_process_and_its_settings() -> None:
    options = (("region", "r"), ("access_key", "a"), ("secret_key", "s"))
    client = files._client(options)
    assert files._client(options) is client
    assert files._client((*options, ("session_token", "t"))) is not client
    assert client.region == "r"
