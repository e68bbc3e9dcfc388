"""Adapter: the Kafka offsets in a query's checkpoint, which Spark writes as one file for each micro-batch."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Offsets = Mapping[tuple[str, int], int]
"""(topic, partition) -> the offset at which the query continues."""


class Checkpoint:
    """The checkpoint of one query, which must not run."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def committed(self) -> int | None:
        """Return the number of the last micro-batch whose results are written; None without one."""
        return max(_numbers(self.directory / "commits"), default=None)

    def offsets(self) -> Offsets:
        """Return the offsets at which the query continues; empty without a completed micro-batch."""
        number = self.committed
        if number is None:
            return {}
        return {place: offset for line in self._lines(number) for place, offset in _offsets_in(line).items()}

    def planned(self) -> Offsets:
        """Return the end of the micro-batch that was planned and not completed; empty without one."""
        number = max(_numbers(self.directory / "offsets"), default=None)
        if number is None or number == self.committed:
            return {}
        return {place: offset for line in self._lines(number) for place, offset in _offsets_in(line).items()}

    def move(self, choose: Callable[[tuple[str, int], int], int]) -> None:
        """Let the query continue at other offsets, with its state. A planned micro-batch is planned again.

        Without a completed micro-batch the checkpoint is deleted, and the query begins with the records that exist.
        """
        number = self.committed
        if number is None:
            shutil.rmtree(self.directory)
            return
        for later in [one for one in _numbers(self.directory / "offsets") if one > number]:
            _remove(self.directory / "offsets" / str(later))
        lines = [_moved(line, choose) for line in self._lines(number)]
        path = self.directory / "offsets" / str(number)
        _remove(path)
        path.write_text("\n".join(lines))

    def _lines(self, number: int) -> list[str]:
        return (self.directory / "offsets" / str(number)).read_text().split("\n")


def checkpoints(root: Path, stage: str) -> list[Checkpoint]:
    """Return the checkpoints of a job below the directory of all checkpoints."""
    return [Checkpoint(found.parent) for pattern in (stage, f"{stage}-*") for found in sorted(root.glob(f"{pattern}/**/offsets"))]


def _numbers(directory: Path) -> list[int]:
    return [int(path.name) for path in directory.glob("*") if path.name.isdecimal()]


def _remove(path: Path) -> None:
    """Remove a file, and the checksum that Hadoop's file system keeps beside it."""
    path.unlink()
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def _parsed(line: str) -> dict[str, dict[str, int]] | None:
    """Return the offsets by topic of a line of a Kafka source; None for another line."""
    try:
        found: Any = json.loads(line)
    except ValueError:
        return None
    is_of_kafka = isinstance(found, dict) and bool(found) and all(_is_partitions(one) for one in found.values())
    return found if is_of_kafka else None


def _is_partitions(value: object) -> bool:
    return isinstance(value, dict) and all(name.isdecimal() and isinstance(offset, int) for name, offset in value.items())


def _offsets_in(line: str) -> Offsets:
    found = _parsed(line) or {}
    return {(topic, int(number)): offset for topic, numbers in found.items() for number, offset in numbers.items()}


def _moved(line: str, choose: Callable[[tuple[str, int], int], int]) -> str:
    found = _parsed(line)
    if found is None:
        return line
    moved = {
        topic: {number: choose((topic, int(number)), offset) for number, offset in numbers.items()}
        for topic, numbers in found.items()
    }
    return json.dumps(moved, separators=(",", ":"))
