"""Adapter: the local states of partitions that moved away. They are kept for a while, should they come back, and then deleted."""

import shutil
import time
from collections.abc import Collection
from pathlib import Path
from typing import Final

_GONE: Final = ".gone"


def stores_in(directory: Path) -> list[int]:
    """The partitions that have a store there."""
    return sorted(int(path.name) for path in directory.iterdir() if path.name.isdigit()) if directory.is_dir() else []


def put_aside(directory: Path, held: Collection[int], keep_seconds: float) -> list[Path]:
    """Rename what nobody holds and nobody wrote to for that long; returns all that is to be deleted, of earlier times too.

    Quick, and to be called where partitions are assigned: a renamed directory is opened by nobody.
    """
    oldest = time.time() - keep_seconds
    for number in stores_in(directory):
        path = directory / str(number)
        if number not in held and _last_written(path) < oldest:
            path.rename(path.with_name(f"{path.name}-{time.time_ns()}{_GONE}"))
    return sorted(directory.glob(f"*{_GONE}"))


def delete(paths: Collection[Path]) -> None:
    """May take long. A directory that another is deleting already is no fault."""
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)


def _last_written(path: Path) -> float:
    times = [file.stat().st_mtime for file in path.iterdir()]
    return max(times, default=path.stat().st_mtime)
