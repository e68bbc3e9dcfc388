"""A directory for the files that the Python workers of an executor share, as long as their daemon runs."""

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_VARIABLE: Final = "STARLING_WORKER_FILES"
"""The environment variable by which the workers know the directory."""
_PREFIX: Final = "starling-workers-"


def worker_files() -> Path | None:
    """Return the directory, which may be missing yet; None in a process that the daemon has not forked."""
    found = os.environ.get(_VARIABLE)
    return None if found is None else Path(found)


@contextmanager
def shared_files() -> Iterator[None]:
    """Give the processes that are forked in the block a directory, which is removed at its end.

    It is in the first of the directories in which the executor keeps blocks.
    """
    # Spark sets the variable for its daemons.
    local = Path(os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or tempfile.gettempdir())
    # Another process may get the same id, but must not get the files.
    pid = os.getpid()
    own = local / f"{_PREFIX}{pid}-{uuid.uuid4().hex[:8]}"
    os.environ[_VARIABLE] = str(own)
    try:
        yield
    finally:
        if os.getpid() == pid:  # not in a forked process
            shutil.rmtree(own, ignore_errors=True)
