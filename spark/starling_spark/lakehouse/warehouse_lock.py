"""Adapter: a warehouse in a local directory belongs to one process at a time.

Iceberg's file-based catalog commits by a rename, which on a local disk does not detect a concurrent writer.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_READERS: Final = ".readers.lock"


class WarehouseInUse(Exception):
    """Another process writes to this warehouse."""


@contextmanager
def locked_warehouse(directory: Path | None, lock_file: str = ".writer.lock") -> Iterator[None]:
    """Lock the directory while the block runs; None (no local directory): no lock. Raises: WarehouseInUse.

    Jobs that write to different tables use different lock files.
    """
    if directory is None:
        yield
        return
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / lock_file).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as cause:
            raise WarehouseInUse(
                f"another process writes to {directory}: run one job at a time, or use a catalog service"
            ) from cause
        yield


@contextmanager
def locked_for_reading(directory: Path | None) -> Iterator[None]:
    """Keep `locked_for_deletion` from the directory while the block runs; wait for one that has begun. None: no lock."""
    if directory is None:
        yield
        return
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / _READERS).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield


@contextmanager
def locked_for_deletion(directory: Path | None) -> Iterator[bool]:
    """Yield whether files may be deleted: nothing reads the directory, and nothing begins to while the block runs."""
    if directory is None:
        yield True
        return
    with (directory / _READERS).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
