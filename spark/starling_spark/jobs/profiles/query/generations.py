"""Adapter: the checkpoints of queries, and which of them publishes.

A checkpoint has beside Spark's own files: `definitions.json`, the definitions with their steps; `visits`, a directory that the
query reads as a stream, where each file has histories of users or makes it visit users; `live.json`, with the epoch of the last
driver that published; `complete`, the last step that is in force for all users. Of several live ones the newest is in force.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from starling_spark.directories import Directory
from starling_spark.jobs.profiles.definitions.entries import Entries, Entry, changed, first_entries, in_force
from starling_spark.jobs.profiles.definitions.in_force import Definition
from starling_spark.kafka.checkpoints import Checkpoint, Offsets

_DEFINITIONS, _LIVE, _COMPLETE, _READ = "definitions.json", "live.json", "complete", "history_read"
_STEPS = "/steps"


class TakenOver(Exception):
    """Another process publishes with this checkpoint."""


@dataclass(frozen=True, slots=True)
class Step:
    """A change of the definitions. `cut`: the offsets before which the query did not know it; `files`: those that it had read until
    then; `users`: about how many had a state. `is_first`: the query begins with it, so the cut is the beginning of the topics.
    """

    number: int = 0
    cut: tuple[tuple[str, int, int], ...] = ()
    files: int = 0
    users: int = 0
    is_first: bool = False

    def offsets(self) -> Offsets:
        """Return the cut by topic and partition."""
        return {(topic, partition): offset for topic, partition, offset in self.cut}


@dataclass(frozen=True, slots=True)
class Generation:
    """A query's checkpoint. `layout`: names what its state depends on beside the definitions. `entries`: the definitions, with
    those before. `number` 0: not live. `epoch`: that of the driver which publishes with it, 0 before the first one.
    """

    directory: Directory
    layout: str
    entries: Entries
    step: Step = Step()
    number: int = 0
    epoch: int = 0

    @property
    def name(self) -> str:
        """The name of the checkpoint."""
        return self.directory.name

    @property
    def definitions(self) -> tuple[Definition, ...]:
        """The definitions of the last step."""
        return in_force(self.entries)

    @property
    def visit_files(self) -> Directory:
        """The directory of the files with histories of users and visits."""
        return self.directory / "visits"

    def cut(self) -> Offsets | None:
        """Return the offsets before which the query does not know the last step; None while one that begins with it has none."""
        if not self.step.is_first:
            return self.step.offsets()
        return Checkpoint(self.directory).first_offsets() or None

    @property
    def is_complete(self) -> bool:
        """Return whether the last step is in force for all users, and the history is published."""
        found = self.directory.read(_COMPLETE)
        return found is not None and int(found or 0) >= self.step.number

    @property
    def has_read_history(self) -> bool:
        """Return whether all files with histories for the last step are written."""
        return self.directory.read(_READ) == str(self.step.number)

    def note_history_read(self) -> None:
        """Note that all files with histories for the last step are written."""
        self.directory.write(_READ, str(self.step.number))


class Generations:
    """The checkpoints below one directory. One process uses them."""

    def __init__(self, root: Directory) -> None:
        self._root = root

    def in_force(self, layout: str) -> Generation | None:
        """Return the generation that publishes; None without one of this layout."""
        return max((one for one in self._all() if one.number and one.layout == layout), key=lambda one: one.number, default=None)

    def open(self, name: str, layout: str, definitions: Sequence[Definition]) -> Generation:
        """Return a new generation, which begins with all that the topics have.

        The definitions are those of a first step, so nothing is published before all is read: only final values are.
        """
        directory = self._root / name
        directory.delete()
        (directory / "visits").make()
        number = 1 + max((one.number for one in self._all()), default=0)
        made = Generation(directory, layout, first_entries(definitions, since=1), Step(1, is_first=True), number)
        _write_entries(made)
        _write_live(made)
        return made

    def change(self, generation: Generation, definitions: Sequence[Definition], users: int) -> Generation:
        """Return the generation with a step to other definitions. The query is stopped; it had a state of about so many users."""
        _remove_files(generation.visit_files)  # a process was killed before it had removed those of the step before
        checkpoint, number = Checkpoint(generation.directory), generation.step.number + 1
        cut = tuple(sorted((*place, offset) for place, offset in checkpoint.offsets().items()))
        step = Step(number, cut, checkpoint.files(), users)
        made = replace(generation, entries=changed(generation.entries, definitions, number), step=step)
        _write_entries(made)
        return made

    def take_over(self, generation: Generation, now_ms: int) -> Generation:
        """Return a live generation with the epoch of this driver, which is higher than those of all drivers before.

        It is stored before a value is published. The normalizer ignores the values of a former driver that still runs. The wall
        clock in seconds makes it higher than epochs in checkpoints that are lost.
        """
        taken = replace(generation, epoch=max(now_ms // 1000, 1 + max(one.epoch for one in self._all())))
        _write_live(taken)
        return taken

    def check(self, generation: Generation) -> None:
        """Raises: TakenOver if a driver that started later publishes with this generation, or with one after it."""
        epoch, own = _live(generation.directory)["epoch"], generation.epoch
        if epoch != own:
            raise TakenOver(f"another process publishes computed traits (epoch {epoch}, here {own}): run one process at a time")

    def complete(self, generation: Generation) -> None:
        """Note that a step is complete, and delete its files and all other checkpoints."""
        generation.directory.write(_COMPLETE, str(generation.step.number))
        _remove_files(generation.visit_files)
        for name in self._root.names():
            if name != generation.name and (self._root / name).exists():
                (self._root / name).delete()

    def _all(self) -> Iterator[Generation]:
        for name in self._root.names():
            generation = self._read(self._root / name)
            if generation is not None:
                yield generation

    def _read(self, directory: Directory) -> Generation | None:
        """Return the generation of a checkpoint; None for a directory without definitions."""
        text = directory.read(_DEFINITIONS)
        if text is None:
            return None
        found: dict[str, Any] = json.loads(text)
        live = _live(directory)
        if "entries" not in found:
            return _of_former_release(directory, found, live)
        entries = tuple(Entry(_definition(one["definition"]), one["since"], one["until"]) for one in found["entries"])
        cut = tuple((topic, partition, offset) for topic, partition, offset in found["step"]["cut"])
        step = Step(**{**found["step"], "cut": cut})
        return Generation(directory, found["layout"].removesuffix(_STEPS), entries, step, live["number"], live["epoch"])


def _of_former_release(directory: Directory, found: Mapping[str, Any], live: Mapping[str, Any]) -> Generation:
    """Return the generation of a release that read the history again at each change.

    It does not publish if its handover was not complete; the former one is in force then.
    """
    number = 0 if live["visits"] and _COMPLETE not in directory.names() else live["number"]
    entries = first_entries([_definition(one) for one in found["definitions"]])
    return Generation(directory, found["layout"], entries, Step(), number, live["epoch"])


def _remove_files(directory: Directory) -> None:
    """Delete the files, and what a writer of Spark that was killed has left; a query may list the directory meanwhile."""
    for name in directory.names():
        if (directory / name).exists():
            (directory / name).delete()
        elif name in directory.names():  # the checksum goes with its file
            directory.remove(name)


def _definition(found: Mapping[str, Any]) -> Definition:
    return Definition(**{**found, "former": tuple(found["former"])})


def _live(directory: Directory) -> dict[str, Any]:
    """Return the content of `live.json`, which releases before epochs wrote without one."""
    return {"number": 0, "visits": 0, "epoch": 0, **json.loads(directory.read(_LIVE) or "{}")}


def _write_live(generation: Generation) -> None:
    generation.directory.write(_LIVE, json.dumps({"number": generation.number, "epoch": generation.epoch}))


def _write_entries(generation: Generation) -> None:
    # A release before steps goes on with a checkpoint without one, and takes another one for that of another layout.
    found = {
        "layout": generation.layout + (_STEPS if generation.step.number else ""),
        "definitions": [asdict(one) for one in generation.definitions],
        "entries": [asdict(one) for one in generation.entries],
        "step": asdict(generation.step),
    }
    generation.directory.write(_DEFINITIONS, json.dumps(found))
