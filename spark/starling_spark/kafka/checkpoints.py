"""Adapter: the Kafka offsets in a query's checkpoint, which Spark writes as one file for each micro-batch."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from starling_spark.directories import Directory

Offsets = Mapping[tuple[str, int], int]
"""(topic, partition) -> the offset at which the query continues."""


class Checkpoint:
    """The checkpoint of one query, which must not run."""

    def __init__(self, directory: Directory) -> None:
        self.directory = directory
        self._offsets = directory / "offsets"

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

    def first_offsets(self) -> Offsets:
        """Return the offsets at which the query began; empty before its first micro-batch is planned."""
        sources = self.directory / "sources"
        texts = [(sources / name).read("0") or "" for name in sources.names()]
        return {place: offset for text in texts for line in text.split("\n") for place, offset in _offsets_in(line).items()}

    def files(self) -> int:
        """Return how many files the query has read from a directory, one a micro-batch."""
        number = self.committed
        found = [] if number is None else [_files_in(line) for line in self._lines(number)]
        return max(found, default=0)

    def planned(self) -> Offsets:
        """Return the end of the micro-batch that was planned and not completed; empty without one."""
        number = max(_numbers(self._offsets), default=None)
        if number is None or number == self.committed:
            return {}
        return {place: offset for line in self._lines(number) for place, offset in _offsets_in(line).items()}

    def move(self, choose: Callable[[tuple[str, int], int], int]) -> None:
        """Let the query continue at other offsets, with its state. A planned micro-batch is planned again.

        Without a completed micro-batch the checkpoint is deleted, and the query begins with the records that exist.
        """
        number = self.committed
        if number is None:
            self.directory.delete()
            return
        for later in [one for one in _numbers(self._offsets) if one > number]:
            self._offsets.remove(str(later))
        lines = [_moved(line, choose) for line in self._lines(number)]
        self._offsets.write(str(number), "\n".join(lines))

    def _lines(self, number: int) -> list[str]:
        return (self._offsets.read(str(number)) or "").split("\n")


def checkpoints(root: Directory, stage: str) -> list[Checkpoint]:
    """Return the checkpoints of a job below the directory of all checkpoints: of one query, or of each below its directory."""
    tops = [root / name for name in root.names() if name == stage or name.startswith(f"{stage}-")]
    found = [one for top in tops for one in (top, *(top / name for name in top.names()))]
    return [Checkpoint(one) for one in found if "offsets" in one.names()]


def _numbers(directory: Directory) -> list[int]:
    return [int(name) for name in directory.names() if name.isdecimal()]


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


def _files_in(line: str) -> int:
    try:
        found: Any = json.loads(line)
    except ValueError:
        return 0
    return int(found["logOffset"]) + 1 if isinstance(found, dict) and "logOffset" in found else 0


def _moved(line: str, choose: Callable[[tuple[str, int], int], int]) -> str:
    found = _parsed(line)
    if found is None:
        return line
    moved = {
        topic: {number: choose((topic, int(number)), offset) for number, offset in numbers.items()}
        for topic, numbers in found.items()
    }
    return json.dumps(moved, separators=(",", ":"))
