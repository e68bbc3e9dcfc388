"""Adapter: a warehouse in a local directory belongs to one process at a time.

Iceberg's catalog of plain files commits by a rename, which on a local disk does not tell two writers apart.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class WarehouseInUse(Exception):
    """Another process writes to this warehouse."""


@contextmanager
def held(directory: Path | None, lock_file: str = ".writer.lock") -> Iterator[None]:
    """Hold the directory while the block runs; None (no local directory): nothing to hold. Raises: WarehouseInUse.

    A job that writes to no table of another's has a `lock_file` of its own.
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
                f"{directory} is written to by another process: one job at a time, or a catalog service"
            ) from cause
        yield
