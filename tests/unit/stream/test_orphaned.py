"""Local stores of partitions that moved away."""

import os
import time
from pathlib import Path

from starling_stream.state.orphaned import delete, set_aside


def _store(directory: Path, number: int, age_seconds: float) -> None:
    path = directory / str(number)
    path.mkdir(parents=True)
    (path / "CURRENT").write_text("x")
    then = time.time() - age_seconds
    os.utime(path / "CURRENT", (then, then))


def test_an_unused_store_is_deleted_once_it_is_old(tmp_path: Path) -> None:
    for number, age in ((0, 10), (1, 5_000), (2, 5_000)):
        _store(tmp_path, number, age)
    gone = set_aside(tmp_path, {2}, 3_600)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.isdigit()) == ["0", "2"]
    delete(gone)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "2"]


def test_a_renamed_store_that_was_not_deleted_is_deleted_the_next_time(tmp_path: Path) -> None:
    _store(tmp_path, 1, 5_000)
    set_aside(tmp_path, (), 3_600)
    delete(set_aside(tmp_path, (), 3_600))
    assert list(tmp_path.iterdir()) == []


def test_the_directory_may_be_missing(tmp_path: Path) -> None:
    assert set_aside(tmp_path / "none", (), 0) == []
