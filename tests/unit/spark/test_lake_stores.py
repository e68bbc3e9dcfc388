"""How workers write to the store that the settings of a client on the JVM describe, and why they cannot."""

import re
from typing import Any

import pytest

from starling_spark.lakehouse.stores.translation import Credentials, FileStore, StoreUnknown, check_table, of_hadoop, of_iceberg

SECRET = "of-the-store"
KEYS = {"fs.s3a.access.key": "key", "fs.s3a.secret.key": SECRET}
ICEBERG_KEYS = {"s3.access-key-id": "key", "s3.secret-access-key": SECRET}
WITH_KEYS = {"access_key": "key", "secret_key": SECRET}
MINIO = {"scheme": "http", "endpoint_override": "minio:9000", "region": "us-east-1"}
CHAIN = "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider"
HADOOP = "org.apache.hadoop.fs.s3a."


def hadoop(scheme: str = "s3a", **given: str) -> dict[str, Any]:
    """The options for the bucket `lake`. In `given` two underscores stand for a dot."""
    settings = {f"fs.s3a.{name.replace('__', '.')}": value for name, value in given.items()}
    return options(of_hadoop("lake", scheme, settings))


def iceberg(**given: str) -> dict[str, Any]:
    """The options for a table in the bucket `lake`. In `given` two underscores stand for a dot, one for a hyphen."""
    properties = {name.replace("__", ".").replace("_", "-"): value for name, value in given.items()}
    return options(of_iceberg("s3://lake/t", properties))


def options(store: FileStore) -> dict[str, Any]:
    assert store.options is not None
    return dict(store.options)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {}),
        ({"endpoint__region": "eu-west-1"}, {"region": "eu-west-1"}),
        ({"access__key": "key", "secret__key": SECRET}, WITH_KEYS),
        ({"access__key": "key", "secret__key": SECRET, "session__token": "t"}, {**WITH_KEYS, "session_token": "t"}),
        # Spark sets the first one, if no endpoint is set.
        ({"endpoint": "s3.amazonaws.com"}, {}),
        ({"endpoint": "s3.eu-west-1.amazonaws.com"}, {"region": "eu-west-1"}),
        ({"endpoint": "https://s3.cn-north-1.amazonaws.com.cn/"}, {"region": "cn-north-1"}),
        ({"endpoint": "s3.eu-west-1.amazonaws.com", "endpoint__region": "eu-west-3"}, {"region": "eu-west-3"}),
        (
            {"endpoint": "s3.eu-west-1.amazonaws.com", "path__style__access": "true"},
            {"region": "eu-west-1", "scheme": "https", "endpoint_override": "s3.eu-west-1.amazonaws.com"},
        ),
        ({"endpoint": "http://minio:9000", "path__style__access": "true"}, MINIO),
        ({"endpoint": "http://minio:9000"}, {**MINIO, "force_virtual_addressing": True}),
        ({"endpoint": "minio:9000", "path__style__access": " TRUE "}, {**MINIO, "scheme": "https"}),
        ({"endpoint": "minio:9000", "connection__ssl__enabled": "false", "path__style__access": "true"}, MINIO),
        (
            {"endpoint": "https://minio:9000", "connection__ssl__enabled": "false", "path__style__access": "true"},
            {**MINIO, "scheme": "https"},
        ),
        ({"impl": "org.apache.hadoop.fs.s3a.S3AFileSystem", "endpoint__fips": "false", "proxy__host": ""}, {}),
    ],
)  # fmt: skip
def test_settings_of_hadoop_become_options_of_arrow(given: dict[str, str], expected: dict[str, Any]) -> None:
    assert hadoop(**given) == expected


@pytest.mark.parametrize(
    "key",
    [
        "connection.maximum", "threads.max", "multipart.size", "fast.upload.buffer", "attempts.maximum", "retry.limit",
        "committer.name", "readahead.range", "experimental.input.fadvise", "block.size", "buffer.dir",
        "vectored.read.min.seek.size", "downgrade.syncable.exceptions",
    ],
)  # fmt: skip
def test_settings_of_hadoop_for_speed_are_skipped(key: str) -> None:
    assert options(of_hadoop("lake", "s3a", {f"fs.s3a.{key}": "7"})) == {}


@pytest.mark.parametrize(
    "key",
    [
        "encryption.algorithm", "server-side-encryption-algorithm", "assumed.role.arn", "proxy.host", "acl.default", "impl",
        "endpoint.fips", "requester.pays.enabled", "custom.signers", "create.storage.class", "create.header.x",
        "of.a.later.release", "security.credential.provider.path", "bucket.lake.encryption.algorithm", "delegation.tokens.enabled",
        "s3.client.factory.impl",
    ],
)  # fmt: skip
def test_a_setting_of_hadoop_that_may_change_files_is_named(key: str) -> None:
    own = key.removeprefix("bucket.lake.")
    with pytest.raises(StoreUnknown, match=re.escape(f"fs.s3a.{own} is not supported")):
        of_hadoop("lake", "s3a", {f"fs.s3a.{key}": "something"})


def test_files_of_credentials_are_not_read() -> None:
    with pytest.raises(StoreUnknown, match=r"hadoop\.security\.credential\.provider\.path is not supported"):
        of_hadoop("lake", "s3a", {"hadoop.security.credential.provider.path": "jceks://file/x"})


def test_a_location_s3_needs_the_file_system_s3a() -> None:
    with pytest.raises(StoreUnknown, match=r"fs\.s3\.impl is not org"):
        of_hadoop("lake", "s3", KEYS)
    assert options(of_hadoop("lake", "s3", {**KEYS, "fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem"})) == WITH_KEYS


def test_settings_of_the_bucket_take_precedence_and_those_of_others_are_skipped() -> None:
    settings = {
        **KEYS,
        "fs.s3a.endpoint": "http://other:1",
        "fs.s3a.bucket.lake.endpoint": "http://minio:9000",
        "fs.s3a.bucket.lake.path.style.access": "true",
        "fs.s3a.bucket.lake.access.key": "own",
        "fs.s3a.bucket.lake2.access.key": "another",
        "fs.s3a.bucket.lake2.encryption.algorithm": "SSE-KMS",
        "fs.s3a.bucket.probe": "0",
    }
    assert options(of_hadoop("lake", "s3a", settings)) == {**MINIO, **WITH_KEYS, "access_key": "own"}


@pytest.mark.parametrize(
    ("providers", "expected"),
    [
        (f"{HADOOP}SimpleAWSCredentialsProvider", WITH_KEYS),
        (f"{HADOOP}TemporaryAWSCredentialsProvider", {**WITH_KEYS, "session_token": "t"}),
        (f"{CHAIN},\n  {HADOOP}TemporaryAWSCredentialsProvider,", {**WITH_KEYS, "session_token": "t"}),
        (CHAIN, {}),
        (f"{HADOOP}auth.IAMInstanceCredentialsProvider", {}),
        ("com.amazonaws.auth.WebIdentityTokenCredentialsProvider", {}),
        ("software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider", {}),
        (f"{HADOOP}AnonymousAWSCredentialsProvider", {"anonymous": True}),
    ],
)
def test_well_known_providers_of_keys(providers: str, expected: dict[str, Any]) -> None:
    given = {"access__key": "key", "secret__key": SECRET, "session__token": "t", "aws__credentials__provider": providers}
    assert hadoop(**given) == expected


@pytest.mark.parametrize(
    "providers",
    [
        f"{HADOOP}auth.AssumedRoleCredentialProvider", "com.example.SimpleAWSCredentialsProvider",
        f"{HADOOP}AnonymousAWSCredentialsProvider,{CHAIN}",
    ],
)  # fmt: skip
def test_other_providers_of_keys_are_not_supported(providers: str) -> None:
    with pytest.raises(StoreUnknown, match=r"fs\.s3a\.aws\.credentials\.provider has a provider"):
        hadoop(aws__credentials__provider=providers)


@pytest.mark.parametrize("endpoint", ["http://minio:9000/base", "ftp://minio", "http://", "https://minio?x=1"])
def test_an_endpoint_is_a_host_and_a_port(endpoint: str) -> None:
    with pytest.raises(StoreUnknown, match="the endpoint is not"):
        hadoop(endpoint=endpoint)


def test_half_of_the_keys_are_not_enough() -> None:
    with pytest.raises(StoreUnknown, match="is missing"):
        hadoop(access__key="key")
    with pytest.raises(StoreUnknown, match="is missing"):
        iceberg(s3__secret_access_key=SECRET)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {}),
        ({"client__region": "eu-west-1"}, {"region": "eu-west-1"}),
        (
            {"s3__access_key_id": "key", "s3__secret_access_key": SECRET, "s3__session_token": "t"},
            {**WITH_KEYS, "session_token": "t"},
        ),
        ({"s3__endpoint": "http://minio:9000/", "s3__path_style_access": "true"}, MINIO),
        ({"s3__endpoint": "http://minio:9000", "client__region": "r"}, {**MINIO, "region": "r", "force_virtual_addressing": True}),
        ({"s3__remote_signing_enabled": "false", "s3__signer__uri": "http://x", "s3__sse__type": "none", "s3__region": "r"}, {}),
        ({"s3__multipart__threshold": "2", "s3__retry__num_retries": "9", "s3__checksum_enabled": "true"}, {}),
        ({"s3__delete__batch_size": "9"}, {}),
        ({"io_impl": "x", "warehouse": "w", "token": "t", "rest__sigv4_enabled": "true"}, {}),
    ],
)  # fmt: skip
def test_properties_of_iceberg_become_options_of_arrow(given: dict[str, str], expected: dict[str, Any]) -> None:
    assert iceberg(**given) == expected


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("s3.remote-signing-enabled", "true"), ("client.factory", "x"), ("client.credentials-provider", "x"),
        ("s3.sse.type", "kms"), ("s3.acl", "private"), ("s3.write.tags.team", "x"), ("s3.write.storage-class", "STANDARD_IA"),
        ("s3.access-points.lake", "x"),
        ("client.assume-role.arn", "x"), ("s3.client-factory-impl", "x"), ("http-client.proxy-endpoint", "x"), ("s3.later", "x"),
    ],
)  # fmt: skip
def test_a_property_of_iceberg_that_may_change_files_is_named(key: str, value: str) -> None:
    with pytest.raises(StoreUnknown, match=re.escape(f"the property {key} is not supported")):
        of_iceberg("s3://lake/t", {key: value})


def test_credentials_of_the_longest_prefix_take_precedence() -> None:
    given = [
        Credentials("s3", {**ICEBERG_KEYS, "s3.access-key-id": "all"}),
        Credentials("s3://lake/t", {"s3.access-key-id": "own", "s3.session-token": "t", "s3.session-token-expires-at-ms": "5"}),
        Credentials("s3://lake/other", {"s3.access-key-id": "another"}),
    ]
    found = options(of_iceberg("s3://lake/t", ICEBERG_KEYS, given))
    assert found == {**WITH_KEYS, "access_key": "own", "session_token": "t"}


@pytest.mark.parametrize(
    "key",
    [
        "write.data.path",
        "write.folder-storage.path",
        "write.location-provider.impl",
        "write.object-storage.path",
        "encryption.key-id",
    ],
)
def test_files_of_a_table_may_be_nowhere_else(key: str) -> None:
    with pytest.raises(StoreUnknown, match=re.escape(f"the property {key} of a table")):
        check_table({"format-version": "2", key: "x"})
    check_table({"write.metadata.compression-codec": "gzip", "write.object-storage.enabled": "false"})


def test_no_secret_is_in_a_text() -> None:
    assert SECRET not in repr(of_hadoop("lake", "s3a", KEYS)) + str(of_iceberg("s3://lake/t", ICEBERG_KEYS))
    with pytest.raises(StoreUnknown) as refused:
        of_hadoop("lake", "s3a", {**KEYS, "fs.s3a.encryption.key": SECRET})
    assert SECRET not in str(refused.value)
