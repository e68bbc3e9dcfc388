"""Adapter: files of the lake's tables, written as a whole into a directory or with Arrow's client of S3."""

from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs

from starling_spark.lakehouse.stores.translation import FileStore, Options


def put(store: FileStore, uri: str, content: pa.Buffer) -> None:
    """Write a new file. Raises: OSError. Nothing of an incomplete file is visible under its name in S3."""
    if store.options is None:
        _put_local(Path(urlsplit(uri).path), content)
    else:
        _put_s3(store.options, uri, content)


def probe(store: FileStore, location: str) -> None:
    """Write and delete a small object among the data files of a table in S3. A directory needs none. Raises: OSError."""
    if store.options is None:
        return
    uri = f"{location}/data/{uuid4().hex}.probe"
    _put_s3(store.options, uri, pa.py_buffer(b"Starling tests whether it can write here."))
    _client(store.options).delete_file(_key(uri))


def _put_s3(options: Options, uri: str, content: pa.Buffer) -> None:
    try:
        with _client(options).open_output_stream(_key(uri)) as sink:
            sink.write(content)
    except pa.ArrowException as error:
        # No record causes it: the content is complete before.
        raise OSError(f"{uri} cannot be written: {error}") from error


def _put_local(path: Path, content: pa.Buffer) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.write_bytes(content)
    except OSError:
        # The disk may be full.
        path.unlink(missing_ok=True)
        raise


def _key(uri: str) -> str:
    """Return bucket and key. Iceberg's names are not percent-encoded, although they look like a URI."""
    return uri.partition("://")[2]


@lru_cache(maxsize=8)
def _client(options: Options) -> fs.S3FileSystem:
    """Return the client of this process.

    Workers are forked from a daemon, and a fork loses the threads of a client. So no module makes one when it is imported.
    """
    given: dict[str, Any] = dict(options)
    retries = fs.AwsStandardS3RetryStrategy(max_attempts=10)
    # A file of less than 10 MB is then one request.
    return fs.S3FileSystem(**given, retry_strategy=retries, connect_timeout=10, request_timeout=30, allow_delayed_open=True)
