"""Directories of checkpoints on this machine, and the settings of executors on others."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from starling_spark.directories import HadoopDirectory, LocalDirectory, as_uri, directory_at, local_path
from starling_spark.session.spark import executor_config


def no_session() -> SparkSession:
    raise AssertionError("a directory of this machine needs no session")


def test_a_directory_that_does_not_exist_has_nothing(tmp_path: Path) -> None:
    missing = directory_at(str(tmp_path / "missing"), no_session)
    assert (missing.exists(), missing.names(), missing.read("file")) == (False, [], None)
    missing.delete()


def test_a_written_file_replaces_the_former_one_and_its_checksum(tmp_path: Path) -> None:
    made = directory_at(tmp_path.as_uri(), no_session) / "profiles"
    made.make()
    made.write("1", "first")
    (tmp_path / "profiles" / ".1.crc").write_bytes(b"of the first text")
    made.write("1", "second")
    assert (made.read("1"), made.names()) == ("second", ["1"])
    made.remove("1")
    assert made.names() == []
    made.delete()
    assert not made.exists()


def test_a_uri_of_another_file_system_belongs_to_hadoop() -> None:
    found = directory_at("s3a://bucket/checkpoints/", no_session) / "profiles" / "abc"
    assert isinstance(found, HadoopDirectory)
    assert (found.name, found.uri) == ("abc", "s3a://bucket/checkpoints/profiles/abc")
    assert local_path("s3a://bucket/checkpoints") is None


def test_a_path_and_its_uri_are_the_same_directory(tmp_path: Path) -> None:
    path = tmp_path / "a b"
    assert as_uri(str(path)) == LocalDirectory(path).uri == path.as_uri()
    assert local_path(str(path)) == path


ENVIRONMENT = {
    "STARLING_KAFKA__BROKERS": "kafka:9092",
    "STARLING_KAFKA__SASL_PASSWORD": "secret",
    "STARLING_REGISTRY__URL": "http://registry",
    "STARLING_CASSANDRA__PASSWORD": "secret",
    "STARLING_TOKENS": "of the API",
    "HOME": "/root",
}


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local[2]", set()),
        ("spark://master:7077", {"KAFKA__BROKERS", "KAFKA__SASL_PASSWORD", "REGISTRY__URL", "CASSANDRA__PASSWORD"}),
        ("k8s://https://kubernetes", {"KAFKA__BROKERS", "REGISTRY__URL"}),
    ],
)
def test_executors_of_other_machines_connect_as_the_driver_does(master: str, expected: set[str]) -> None:
    found = executor_config(master, ENVIRONMENT)
    assert {name.removeprefix("spark.executorEnv.STARLING_") for name in found} == expected
