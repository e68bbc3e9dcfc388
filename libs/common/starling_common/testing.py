"""Adapter for tests: a service as a process on a free port, stopped when the block ends."""

import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

import httpx
from cassandra.cluster import Session

from starling_common.cassandra.sessions import create_tables, open_session, table_names
from starling_common.settings import Cassandra

T = TypeVar("T")

_START_SECONDS = 120.0
_STOP_SECONDS = 30.0
_LOG_CHARS = 8_000

_FIRST_PORT, _PORTS = 10_000, 8_000
"""Below the kernel's range for outgoing connections, which could take a free port before the service listens on it."""

_PORT_FILE = Path(tempfile.gettempdir()) / f"starling-last-port-{os.getuid()}"


@dataclass(frozen=True, slots=True)
class Service:
    """A running process. Its log has one JSON object per line."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def kill(self) -> None:
        """Kill the process (SIGKILL), as the kernel does when memory is short."""
        self.process.kill()
        self.process.wait(_STOP_SECONDS)

    def stop(self) -> int:
        """Send SIGTERM and wait for the end; return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(_STOP_SECONDS)

    def is_ready(self) -> bool:
        """Return whether `/readyz` passes; False if the process does not respond."""
        try:
            return _client().get(f"{self.url}/readyz").status_code == 200
        except httpx.TransportError:
            return False


@cache
def _client() -> httpx.Client:
    """Return the client of all questions, which keeps no connection: a new client each time costs 25 ms of processor time."""
    return httpx.Client(timeout=15, trust_env=False, limits=httpx.Limits(max_keepalive_connections=0))


@contextmanager
def running(module: str, environment: Mapping[str, str], log: Path, *, ready: bool = True) -> Iterator[Service]:
    """Run `python -m module` with these settings; yield the service when it is ready (`ready` False: at once).

    An exception of the block prints the end of the log, which pytest shows with the failed test.

    Raises: RuntimeError with the end of its log if it does not become ready.
    """
    port = free_port()
    own = {"STARLING_HTTP__PORT": str(port), "STARLING_INSTANCE_ID": f"{module}-{port}"}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("STARLING_")}
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", module], env={**inherited, **environment, **own}, stdout=output, stderr=subprocess.STDOUT
        )
    service = Service(f"http://127.0.0.1:{port}", process, log)
    try:
        if ready:
            _wait_ready(service)
        yield service
    except BaseException:
        print(f"the end of the log of {module}, exit code {process.poll()}:\n{log.read_text(errors='replace')[-_LOG_CHARS:]}")  # noqa: T201
        raise
    finally:
        if process.poll() is None:
            _end(service)


_UNUSED: dict[tuple[str, int], list[str]] = {}
"""(contact points, port) -> keyspaces with empty tables."""


@contextmanager
def own_keyspace(cassandra: Cassandra) -> Iterator[Cassandra]:
    """Yield the same Cassandra with a keyspace that no one else uses, and its empty tables.

    A keyspace is used again once its tables are emptied, which costs the node a tenth of a new one.
    """
    unused = _UNUSED.setdefault((cassandra.contact_points, cassandra.port), [])
    session = open_session(cassandra)
    try:
        if unused:
            settings = cassandra.model_copy(update={"keyspace": unused.pop()})
        else:
            settings = cassandra.model_copy(update={"keyspace": f"t{uuid.uuid4().hex[:12]}"})
            create_tables(session, settings)
        schema = _schema(session, settings.keyspace)
        yield settings
        if _schema(session, settings.keyspace) == schema:
            _empty(session, settings.keyspace)
            unused.append(settings.keyspace)
        else:
            session.execute(f"DROP KEYSPACE {settings.keyspace}", timeout=60)
    finally:
        session.cluster.shutdown()


def drop_own_keyspaces(cassandra: Cassandra) -> None:
    """Drop the keyspaces of `own_keyspace` that this process keeps for the next use."""
    session = open_session(cassandra)
    try:
        for keyspace in _UNUSED.pop((cassandra.contact_points, cassandra.port), []):
            session.execute(f"DROP KEYSPACE {keyspace}", timeout=60)
    finally:
        session.cluster.shutdown()


def _schema(session: Session, keyspace: str) -> set[tuple[str, ...]]:
    """Return columns and dropped columns: a column that was dropped and added again ignores older writes."""
    found = set()
    for table in ("columns", "dropped_columns"):
        statement = f"SELECT table_name, column_name, type FROM system_schema.{table} WHERE keyspace_name = %s"  # noqa: S608
        found |= {(table, *row.values()) for row in session.execute(statement, (keyspace,), timeout=60)}
    return found


def _empty(session: Session, keyspace: str) -> None:
    used = {table for table in table_names() if session.execute(f"SELECT * FROM {keyspace}.{table} LIMIT 1", timeout=60).one()}  # noqa: S608
    if "state_floor" in used:
        # Without rows they may have tombstones of a former incarnation, which would hide later writes with smaller timestamps.
        used |= {"states", "state_dues"}
    for table in sorted(used):
        session.execute(f"TRUNCATE {keyspace}.{table}", timeout=60)


def free_port() -> int:
    """Return a port of 127.0.0.1 without a listener. Ports are assigned in rotation, so that concurrent tests get different ones.

    Raises: RuntimeError if all ports are in use.
    """
    with _PORT_FILE.open("a+") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        turn.seek(0)
        last = int(turn.read() or _FIRST_PORT)
        for step in range(1, _PORTS):
            port = _FIRST_PORT + (last - _FIRST_PORT + step) % _PORTS
            if _can_listen(port):
                turn.truncate(0)
                turn.write(str(port))
                return port
    raise RuntimeError(f"no free port from {_FIRST_PORT} to {_FIRST_PORT + _PORTS - 1}")


def _can_listen(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _wait_ready(service: Service) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not service.is_ready():
        if service.process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the service did not become ready:\n{service.log.read_text()[-_LOG_CHARS:]}")
        time.sleep(0.1)


def _end(service: Service) -> None:
    try:
        service.stop()
    except subprocess.TimeoutExpired:
        service.kill()


def eventually(what: Callable[[], T | None], timeout_seconds: float = 90.0) -> T:
    """Return the first true result. Raises: TimeoutError with the last result; the timeout is no statement about speed."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        answer = what()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise TimeoutError(f"still {answer!r} after {timeout_seconds:g} s")
        time.sleep(0.05)
