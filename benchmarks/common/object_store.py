"""An object store with the API of S3, over a directory, for the duration of a block. `make s3-server` builds it once."""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyarrow.fs import S3FileSystem

from common.bench import HERE
from starling_common.testing import eventually, free_port
from starling_local.stack.supervision.process import spawn, wait_or_kill

BUCKET: Final = "benchmark"
_KEY, _SECRET, _REGION = "starling-benchmarks", "of-the-object-store", "us-east-1"
_START_SECONDS: Final = 60
_STOP_SECONDS: Final = 30.0


@contextmanager
def object_store(home: Path) -> Iterator[Mapping[str, str]]:
    """Start the store with an empty bucket, and stop it at the end. Yield the settings of Spark for `s3a://`."""
    command = [str(HERE.parent / "tools" / "s3_server.sh"), "--path"]
    binary = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    objects, address = home / "objects", f"127.0.0.1:{free_port()}"
    objects.mkdir(parents=True)
    arguments = (binary, "--quiet", "--port", address, "--region", _REGION, "posix", str(objects))
    process = spawn(arguments, {"ROOT_ACCESS_KEY": _KEY, "ROOT_SECRET_KEY": _SECRET}, home / "log")
    try:
        eventually(lambda: _has_bucket(address), _START_SECONDS)
        yield {
            "spark.hadoop.fs.s3a.endpoint": f"http://{address}",
            "spark.hadoop.fs.s3a.endpoint.region": _REGION,
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.access.key": _KEY,
            "spark.hadoop.fs.s3a.secret.key": _SECRET,
        }
    finally:
        process.terminate()
        wait_or_kill(process, _STOP_SECONDS)


def _has_bucket(address: str) -> bool:
    files = S3FileSystem(
        access_key=_KEY, secret_key=_SECRET, region=_REGION, scheme="http", endpoint_override=address, allow_bucket_creation=True
    )
    try:
        files.create_dir(BUCKET)
    except OSError:  # it has not started yet
        return False
    return True
