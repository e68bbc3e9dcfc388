"""Edge: `python -m starling_local.stack.archives` makes the class archives of the JVM parts; prints nothing if none is missing.

Each part runs once, topics, schemas and tables are created in it, and Java writes the classes that it has loaded at its end.
"""

import fcntl
import os
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import IO

from starling_local.errors import NotPossible
from starling_local.instance import Options
from starling_local.java import Java, find_java
from starling_local.runtime.archives import PARTS, archive_path, missing_archives
from starling_local.runtime.fetching import default_runtime_dir
from starling_local.stack.parts.part import Part
from starling_local.stack.supervision.probes import is_ready
from starling_local.stack.wiring import runnable_parts
from starling_local.testing import free_base

_READY_SECONDS = 300.0
_DEPLOY_SECONDS = 300.0
_WRITE_SECONDS = 300.0
_POLL_SECONDS = 0.5


class NoArchiveError(NotPossible):
    """An archive cannot be made. The text states the reason; the parts start without archives, which takes longer."""


def make(java: Java, runtime_dir: Path) -> None:
    """Make all archives; each appears complete or not at all. Several processes may call this at once.

    Raises: NoArchiveError, FetchError if Maven cannot fetch a bundle.
    """
    directory = archive_path(PARTS[0], java, runtime_dir).parent
    directory.mkdir(parents=True, exist_ok=True)
    with ExitStack() as last:
        lock = last.enter_context((directory / ".lock").open("w"))
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not missing_archives(java, runtime_dir):  # Another process made them in the meantime.
            return
        scratch = Path(last.enter_context(tempfile.TemporaryDirectory(prefix=".new-", dir=directory)))
        options = Options(instance_id=uuid.uuid4().hex, port_base=last.enter_context(free_base()), only=("deploy",))
        parts = {part.name: part for part in runnable_parts(scratch / "instance", options, java, archives=False)}
        written = {name: scratch / f"{name}.jsa" for name in PARTS}
        log = scratch / "log"
        try:
            _run([_writing(parts[name], path) for name, path in written.items()], parts["deploy"], log)
            for name, path in written.items():
                path.rename(archive_path(name, java, runtime_dir))
        except (OSError, subprocess.SubprocessError) as error:
            raise NoArchiveError(f"{error}; {_end_of(log)}") from error


def _writing(part: Part, archive: Path) -> Part:
    return replace(part, command=(part.command[0], f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:cds*=error", *part.command[1:]))


def _run(stores: list[Part], deploy: Part, log: Path) -> None:
    """Run the stores, deploy to them, and wait for their end. Raises: OSError, SubprocessError."""
    with log.open("ab") as out, ExitStack() as last:
        started = []
        for part in stores:  # one at a time: a start beside others takes longer than some of its own limits on a busy machine
            process = _started(part, out)
            last.callback(process.wait)
            last.callback(process.kill)  # called first; nothing if the process has ended
            _await_ready(part, process)
            started.append(process)
        subprocess.run(deploy.command, env=_environment(deploy), stdout=out, stderr=out, check=True, timeout=_DEPLOY_SECONDS)
        for process in started:
            process.terminate()
            process.wait(_WRITE_SECONDS)


def _started(part: Part, out: IO[bytes]) -> subprocess.Popen[bytes]:
    for directory in part.directories:
        directory.mkdir(parents=True, exist_ok=True)
    for path, text in part.files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    if part.prepare:
        subprocess.run(part.prepare.command, env=_environment(part), stdout=out, stderr=out, check=True)
    return subprocess.Popen(part.command, env=_environment(part), stdout=out, stderr=out)


def _environment(part: Part) -> dict[str, str]:
    return {**os.environ, **part.env}


def _await_ready(part: Part, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while not is_ready(part.probe):
        if process.poll() is not None:
            raise OSError(f"{part.name} ended with {process.returncode}")
        if time.monotonic() >= deadline:
            raise TimeoutError(f"{part.name} did not become ready in {_READY_SECONDS:.0f} s")
        time.sleep(_POLL_SECONDS)


def _end_of(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return " | ".join(line.strip() for line in lines[-3:])


def main() -> int:
    """Make the archives if one is missing. Return 0 also after a failure, because nothing depends on them."""
    java, runtime_dir = find_java(), default_runtime_dir()
    if missing_archives(java, runtime_dir):
        print("setup: making class archives of the JVM parts ...", flush=True)  # noqa: T201 - for the terminal
        try:
            make(java, runtime_dir)
        except NotPossible as error:
            sys.stderr.write(f"setup: no class archives, so the JVM parts start more slowly: {error}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
