"""Adapter for tests: a real PostgreSQL server of a test's own, for the duration of a block."""

import os
import platform
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from starling_local.errors import NotPossible
from starling_local.ports import HOST
from starling_local.runtime import BUNDLES, fetch
from starling_local.runtime.fetching import default_runtime_dir
from starling_local.stack.supervision.process import end_with_parent, wait_or_kill

USER: Final = "starling"
DATABASE: Final = "postgres"
_UNPRIVILEGED: Final = "nobody"  # vocabulary: nobody: the name of the account
_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.05


class PostgresError(NotPossible):
    """The server cannot be started. The text states the reason."""


class PostgresServer:
    """A running server. `password`: of the superuser `starling`."""

    def __init__(self, home: Path, password: str, account: dict[str, Any]) -> None:
        """Start it. `home`: has the programs and the data; `account`: options of the process. Raises: PostgresError."""
        self.port = _free_port()
        self.password = password
        self.log = home / "log"
        """The file with the messages of the server."""
        self._home = home
        self._account = account
        self._process = self._started()

    def restart(self) -> None:
        """Kill the server with its processes, and start it again at the same port. Raises: PostgresError."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = self._started()

    def stop(self) -> None:
        """Stop the server without waiting for its clients."""
        self._process.send_signal(signal.SIGINT)
        wait_or_kill(self._process, _STOP_SECONDS)

    def uri(self, user: str = USER, database: str = DATABASE) -> str:
        """Return the address of a database, without a password."""
        return f"postgresql://{user}@{HOST}:{self.port}/{database}"

    def _started(self) -> subprocess.Popen[bytes]:
        settings = {
            "listen_addresses": HOST, "port": self.port, "unix_socket_directories": "", "fsync": "off", "shared_buffers": "32MB",
        }  # fmt: skip
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with self.log.open("ab") as out:
            begin = os.fstat(out.fileno()).st_size
            server = subprocess.Popen(
                [self._home / "programs" / "bin" / "postgres", "-D", self._home / "data", *options],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self._home,
                process_group=0,
                preexec_fn=end_with_parent,  # noqa: PLW1509 - as for the parts of the stack
                **self._account,
            )
        deadline = time.monotonic() + _START_SECONDS
        while b"ready to accept connections" not in self.log.read_bytes()[begin:]:
            if server.poll() is not None or time.monotonic() > deadline:
                server.kill()
                server.wait()
                raise PostgresError(f"PostgreSQL did not start: {self.log.read_text()[-2000:]}")
            time.sleep(_POLL_SECONDS)
        return server


@contextmanager
def postgres(password: str) -> Iterator[PostgresServer]:
    """Start a server on a free port; stop it and delete its data at the end. Logins need the password (SCRAM).

    The server refuses to run as root, so root starts it by an account without rights. Raises: PostgresError, FetchError.
    """
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise PostgresError(
            f"the PostgreSQL of the tests runs on Linux with x86-64, and not on {sys.platform} {platform.machine()}"
        )
    installed = fetch(BUNDLES["postgres"], default_runtime_dir())
    with tempfile.TemporaryDirectory(prefix="starling-postgres-") as scratch:
        home, account = Path(scratch), _account()
        programs, data = home / "programs", home / "data"
        # The other account may lack the right to enter the directory of the bundles.
        shutil.copytree(installed, programs, symlinks=True, ignore=shutil.ignore_patterns("*.a"))
        (home / "password").write_text(password)
        if account:
            for path in (home, home / "password"):
                os.chown(path, account["user"], account["group"])
        _initialise(programs, data, home / "password", account)
        server = PostgresServer(home, password, account)
        try:
            yield server
        finally:
            server.stop()


def _account() -> dict[str, Any]:
    """Return the options of a process for the account of the server; empty: the caller's own."""
    if os.geteuid() != 0:
        return {}
    entry = pwd.getpwnam(_UNPRIVILEGED)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def _initialise(programs: Path, data: Path, password: Path, account: dict[str, Any]) -> None:
    command = [
        str(programs / "bin" / "initdb"),
        f"--pgdata={data}",
        f"--username={USER}",
        f"--pwfile={password}",
        "--auth",
        "scram-sha-256",
    ]
    more = ["--encoding", "UTF8", "--locale", "C", "--no-sync"]
    done = subprocess.run([*command, *more], cwd=data.parent, capture_output=True, text=True, check=False, **account)
    if done.returncode != 0:
        raise PostgresError(f"initdb failed: {done.stderr.strip()}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
