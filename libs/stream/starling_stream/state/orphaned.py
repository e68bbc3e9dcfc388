"""Adapter: the local stores of partitions that moved away. They are deleted after a while, unless the partition returns."""

import shutil
import time
from collections.abc import Collection
from pathlib import Path
from typing import Final

_GONE: Final = ".gone"


def stores_in(directory: Path) -> list[int]:
    """Return the partitions that have a store in the directory."""
    return sorted(int(path.name) for path in directory.iterdir() if path.name.isdigit()) if directory.is_dir() else []


def set_aside(directory: Path, used: Collection[int], keep_seconds: float) -> list[Path]:
    """Rename the unused stores without a write for that long; return all directories to delete, earlier ones included.

    Quick, and called where partitions are assigned: a renamed directory cannot be opened as a store.
    """
    oldest = time.time() - keep_seconds
    for number in stores_in(directory):
        path = directory / str(number)
        if number not in used and _last_written(path) < oldest:
            path.rename(path.with_name(f"{path.name}-{time.time_ns()}{_GONE}"))
    return sorted(directory.glob(f"*{_GONE}"))


def delete(paths: Collection[Path]) -> None:
    """Delete the directories. May take long; another process may delete them at the same time."""
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)


def _last_written(path: Path) -> float:
    times = [file.stat().st_mtime for file in path.iterdir()]
    return max(times, default=path.stat().st_mtime)
