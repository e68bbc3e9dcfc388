"""Pure core: settings of a client on the JVM -> how Python workers write files to the same store, or why they cannot.

A setting that is not known here might change what is written, such as its encryption. So only known settings are translated, and
settings that concern speed alone are skipped.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import urlsplit

Options: TypeAlias = tuple[tuple[str, str | bool], ...]
"""The arguments of `pyarrow.fs.S3FileSystem`, by name."""

CREDENTIAL_FILES: Final = "hadoop.security.credential.provider.path"
HADOOP_S3: Final = "fs.s3.impl"
HADOOP_PREFIX: Final = "fs.s3a."

_S3A: Final = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_PROVIDERS: Final = "aws.credentials.provider"
_PACKAGES: Final = ("org.apache.hadoop.fs.s3a.", "software.amazon.awssdk.auth.credentials.", "com.amazonaws.auth.")
_SIMPLE: Final = "SimpleAWSCredentialsProvider"
_TEMPORARY: Final = "TemporaryAWSCredentialsProvider"
_ANONYMOUS: Final = frozenset({"AnonymousAWSCredentialsProvider", "AnonymousCredentialsProvider"})
_OF_THE_MACHINE: Final = frozenset(
    {
        "ContainerCredentialsProvider", "DefaultAWSCredentialsProviderChain", "DefaultCredentialsProvider",
        "EC2ContainerCredentialsProviderWrapper", "EnvironmentVariableCredentialsProvider", "IAMInstanceCredentialsProvider",
        "InstanceProfileCredentialsProvider", "WebIdentityTokenCredentialsProvider", "WebIdentityTokenFileCredentialsProvider",
    }
)  # fmt: skip
"""Providers that look at the environment or at a service of the machine, as Arrow does without keys."""
_OF_HADOOP: Final = frozenset(
    {"endpoint", "endpoint.region", "path.style.access", "connection.ssl.enabled", "access.key", "secret.key", "session.token"}
)
_SPEED_OF_HADOOP: Final = (
    "attempts.", "audit.", "authoritative.path", "block.size", "buffer.dir", "bulk.delete.", "change.detection.",
    "checksum.validation", "classloader.isolation", "committer.", "connection.", "create.conditional.", "create.multipart",
    "create.performance", "cross.region.access.", "directory.marker.", "directory.operations.", "downgrade.syncable.",
    "etag.checksum.", "executor.capacity", "experimental.", "fast.", "input.", "io.rate.", "list.version", "max.total.tasks",
    "multiobjectdelete.", "multipart.", "optimized.copy.", "paging.", "performance.flags", "prefetch.", "readahead.", "retry.",
    "socket.", "ssl.channel.mode", "threads.", "user.agent.", "vectored.",
)  # fmt: skip
_WITHOUT_EFFECT_ON_HADOOP: Final[Mapping[str, str]] = {
    "impl": _S3A,
    "accesspoint.required": "false",
    "endpoint.fips": "false",
    "http.signer.enabled": "false",
    "requester.pays.enabled": "false",
}
_OF_ICEBERG: Final = frozenset(
    {"s3.endpoint", "s3.path-style-access", "s3.access-key-id", "s3.secret-access-key", "s3.session-token", "client.region"}
)
_SPEED_OF_ICEBERG: Final = (
    "client.refresh-credentials-", "s3.analytics-accelerator.", "s3.checksum-enabled", "s3.chunked-encoding-enabled", "s3.crt.",
    "s3.cross-region-access-enabled", "s3.delete", "s3.directory-bucket.", "s3.multipart.", "s3.preload-client-enabled",
    "s3.region", "s3.retry.", "s3.session-token-expires-at-ms", "s3.signer", "s3.staging-dir",
)  # fmt: skip
"""`s3.region` and `s3.signer…` are of other clients, unless requests are signed by a service."""
_WITHOUT_EFFECT_ON_ICEBERG: Final[Mapping[str, str]] = {
    "client.legacy-md5-plugin-enabled": "false",
    "s3.acceleration-enabled": "false",
    "s3.access-grants.enabled": "false",
    "s3.dualstack-enabled": "false",
    "s3.remote-signing-enabled": "false",
    "s3.sse.type": "none",
    "s3.use-arn-region-enabled": "false",
    "s3.write.namespace-tag-enabled": "false",
    "s3.write.table-tag-enabled": "false",
}
_PROXY: Final = "http-client.proxy-endpoint"
_OF_TABLES: Final = (
    "encryption.", "write.data.path", "write.folder-storage.path", "write.location-provider.impl", "write.object-storage.",
)  # fmt: skip
_AWS: Final = re.compile(r"s3(?:[.-]([a-z]{2}(?:-[a-z]+)+-\d))?\.amazonaws\.com(?:\.cn)?")
_REGION: Final = "us-east-1"
"""The region of a server that is not of AWS. Without one, clients ask a service that only machines of AWS have."""


class StoreUnknown(Exception):
    """Workers cannot write to the store. The text states the setting, without its value."""


@dataclass(frozen=True, slots=True)
class FileStore:
    """How workers write files. `options`: of S3; None: they are in a directory. The options contain secrets."""

    options: Options | None = field(default=None, repr=False)

    @property
    def is_directory(self) -> bool:
        """Whether the files are in a directory of the machine."""
        return self.options is None


DIRECTORY: Final = FileStore()


class Credentials(NamedTuple):
    """Properties of Iceberg's client that a catalog gives for locations with a prefix."""

    prefix: str
    properties: Mapping[str, str]


class _Client(NamedTuple):
    """A client of S3. `keys`: key, secret and session token."""

    endpoint: str
    region: str
    is_path_style: bool
    keys: tuple[str, str, str]
    is_anonymous: bool = False


def check_table(properties: Mapping[str, str]) -> None:
    """Check that files of a table belong below `data/`, unencrypted. Raises: StoreUnknown."""
    for key, value in sorted(properties.items()):
        if key.startswith(_OF_TABLES) and value.lower() != "false":
            raise StoreUnknown(f"the property {key} of a table is not supported")


def of_hadoop(bucket: str, scheme: str, settings: Mapping[str, str]) -> FileStore:
    """Return the store of a bucket from settings of Hadoop, without Hadoop's defaults. Raises: StoreUnknown.

    `settings`: those with `HADOOP_PREFIX`, `CREDENTIAL_FILES` and `HADOOP_S3`; `scheme`: of the table's location.
    """
    if settings.get(CREDENTIAL_FILES):
        raise StoreUnknown(f"the setting {CREDENTIAL_FILES} is not supported")
    if scheme == "s3" and settings.get(HADOOP_S3) != _S3A:
        raise StoreUnknown(f"the setting {HADOOP_S3} is not {_S3A}")
    own = _of_bucket(bucket, settings)
    for key, value in sorted(own.items()):
        is_known = key in _OF_HADOOP or key == _PROVIDERS or key.startswith(_SPEED_OF_HADOOP)
        if not is_known and _WITHOUT_EFFECT_ON_HADOOP.get(key) != value:
            raise StoreUnknown(f"the setting {HADOOP_PREFIX}{key} is not supported")
    keys, is_anonymous = _credentials(own)
    endpoint = own.get("endpoint", "")
    if endpoint and "://" not in endpoint:
        scheme = "https" if _is_true(own.get("connection.ssl.enabled", "true")) else "http"
        endpoint = f"{scheme}://{endpoint}"
    is_path_style = _is_true(own.get("path.style.access", "false"))
    return _store(_Client(endpoint, own.get("endpoint.region", ""), is_path_style, keys, is_anonymous))


def of_iceberg(location: str, properties: Mapping[str, str], credentials: Sequence[Credentials] = ()) -> FileStore:
    """Return the store of a location from the properties of Iceberg's `S3FileIO`. Raises: StoreUnknown.

    The credentials with the longest prefix of the location take precedence over the properties.
    """
    given = max((one for one in credentials if location.startswith(one.prefix)), key=lambda one: len(one.prefix), default=None)
    own = {**properties, **(given.properties if given else {})}
    if own.get(_PROXY):
        raise StoreUnknown(f"the property {_PROXY} is not supported")
    for key, value in sorted(own.items()):
        if not key.startswith(("s3.", "client.")) or not value:
            continue
        is_known = key in _OF_ICEBERG or key.startswith(_SPEED_OF_ICEBERG)
        if not is_known and _WITHOUT_EFFECT_ON_ICEBERG.get(key) != value.lower():
            raise StoreUnknown(f"the property {key} is not supported")
    keys = (own.get("s3.access-key-id", ""), own.get("s3.secret-access-key", ""), own.get("s3.session-token", ""))
    is_path_style = _is_true(own.get("s3.path-style-access", "false"))
    return _store(_Client(own.get("s3.endpoint", ""), own.get("client.region", ""), is_path_style, keys))


def _of_bucket(bucket: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a bucket without their prefixes. Its own ones take precedence; an empty one is unset."""
    found = {key.removeprefix(HADOOP_PREFIX): value.strip() for key, value in settings.items() if key.startswith(HADOOP_PREFIX)}
    general = {key: value for key, value in found.items() if not key.startswith("bucket.")}
    prefix = f"bucket.{bucket}."
    own = {key.removeprefix(prefix): value for key, value in found.items() if key.startswith(prefix)}
    return {key: value for key, value in {**general, **own}.items() if value}


def _credentials(own: Mapping[str, str]) -> tuple[tuple[str, str, str], bool]:
    """Return key, secret and token, and whether requests are unsigned."""
    listed = [name.strip() for name in own.get(_PROVIDERS, "").split(",") if name.strip()]
    names = {name.rpartition(".")[2] for name in listed}
    is_known = all(name.startswith(_PACKAGES) for name in listed) and names <= {_SIMPLE, _TEMPORARY, *_ANONYMOUS, *_OF_THE_MACHINE}
    if not is_known or (names & _ANONYMOUS and len(names) > 1):
        raise StoreUnknown(f"the setting {HADOOP_PREFIX}{_PROVIDERS} has a provider, or several, that are not supported")
    if names & _ANONYMOUS:
        return ("", "", ""), True
    if names and not names & {_SIMPLE, _TEMPORARY}:
        return ("", "", ""), False
    token = own.get("session.token", "") if not names or _TEMPORARY in names else ""
    return (own.get("access.key", ""), own.get("secret.key", ""), token), False


def _store(client: _Client) -> FileStore:
    key, secret, token = client.keys
    if bool(key) != bool(secret):
        raise StoreUnknown("one of the access key and the secret key is missing")
    parts = urlsplit(client.endpoint)
    if client.endpoint and (parts.scheme not in {"http", "https"} or not parts.netloc or parts.path.strip("/") or parts.query):
        raise StoreUnknown("the endpoint is not http:// or https:// with a host and a port alone")
    aws = _AWS.fullmatch(parts.netloc)
    region = client.region or (aws[1] if aws else None) or ("" if not client.endpoint or aws else _REGION)
    options: dict[str, str | bool] = {"region": region} if region else {}
    # The client finds the servers of AWS by the region, and addresses a bucket by its host name.
    if client.endpoint and not (aws and parts.scheme == "https" and not client.is_path_style):
        options |= {"scheme": parts.scheme, "endpoint_override": parts.netloc}
        options |= {} if client.is_path_style else {"force_virtual_addressing": True}
    if client.is_anonymous:
        options["anonymous"] = True
    if key:
        options |= {"access_key": key, "secret_key": secret}
        options |= {"session_token": token} if token else {}
    return FileStore(tuple(sorted(options.items())))


def _is_true(value: str) -> bool:
    return value.strip().lower() == "true"
