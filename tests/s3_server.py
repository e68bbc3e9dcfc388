"""A real S3 server with one bucket, over a directory. The first use builds it, which takes minutes."""

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyarrow.fs import FileSelector, S3FileSystem

from starling_common.testing import eventually, free_port
from starling_local.stack.supervision.process import spawn
from tests.conftest import ROOT
from tests.processes import end

ACCESS_KEY, SECRET_KEY = "starling-tests", "of-the-object-store"
BUCKET = "starling"
REGION = "us-east-1"


@dataclass
class S3Server:
    """A running server. `endpoint`: its URL; `root`: the directory with an object for each file; `command`: of its process."""

    endpoint: str
    root: Path
    log: Path
    command: Sequence[str]
    process: subprocess.Popen[bytes]

    def restart(self) -> None:
        """Start the process again after its end; return when it answers."""
        self.process = _started(self.command, self.log)
        eventually(lambda: _has_bucket(self), 60)

    def files(self) -> S3FileSystem:
        """Return a client of the server."""
        scheme, _, address = self.endpoint.partition("://")
        return S3FileSystem(
            access_key=ACCESS_KEY,
            secret_key=SECRET_KEY,
            region=REGION,
            scheme=scheme,
            endpoint_override=address,
            allow_bucket_creation=True,
        )

    def names(self, prefix: str) -> list[str]:
        """Return the names of all objects below a prefix of the bucket, without the bucket."""
        found = self.files().get_file_info(FileSelector(f"{BUCKET}/{prefix}", recursive=True, allow_not_found=True))
        return sorted(one.path.removeprefix(f"{BUCKET}/") for one in found if one.is_file)

    def arrow(self) -> Mapping[str, str]:
        """Return the environment with the keys for clients of Arrow."""
        return {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}

    def hadoop(self) -> Mapping[str, str]:
        """Return the settings of Spark with which `s3a://` is this server."""
        return {
            "spark.hadoop.fs.s3a.endpoint": self.endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": REGION,
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
            "spark.hadoop.fs.s3a.access.key": ACCESS_KEY,
            "spark.hadoop.fs.s3a.secret.key": SECRET_KEY,
        }


@contextmanager
def s3_server(home: Path, host: str = "127.0.0.1") -> Iterator[S3Server]:
    """Run the server with an empty bucket for the duration of a block."""
    script = str(ROOT / "tools" / "s3_server.sh")
    subprocess.run([script, "--version"], check=True, stdout=subprocess.DEVNULL)
    binary = subprocess.run([script, "--path"], check=True, capture_output=True, text=True).stdout.strip()
    root, log, address = home / "objects", home / "log", f"{host}:{free_port()}"
    root.mkdir(parents=True)
    command = (binary, "--quiet", "--port", address, "--region", REGION, "posix", str(root))
    server = S3Server(f"http://{address}", root, log, command, _started(command, log))
    try:
        eventually(lambda: _has_bucket(server), 60)
        yield server
    finally:
        end(server.process)


def _started(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    return spawn(command, {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}, log)


def _has_bucket(server: S3Server) -> bool:
    assert server.process.poll() is None, server.log.read_text()
    try:
        server.files().create_dir(BUCKET)
    except OSError:  # it has not started yet
        return False
    return True
