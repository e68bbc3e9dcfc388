"""Adapter: the checkpoints of queries, and which of them publishes.

A checkpoint has beside Spark's own files: `definitions.json`; `visits`, a directory that the query reads as a stream, where each
file makes it visit a part of its users; `live.json`, from the moment at which the query publishes. Of several live ones the newest
is in force: the others were stopped before it became live. `live.json` also has the epoch of the last driver that published.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from starling_spark.directories import Directory
from starling_spark.jobs.profiles.definitions.in_force import Definition

_DEFINITIONS, _LIVE, _COMPLETE = "definitions.json", "live.json", "complete"


class TakenOver(Exception):
    """Another process publishes with this checkpoint."""


@dataclass(frozen=True, slots=True)
class Generation:
    """A query's checkpoint. `layout`: names what its state depends on beside the definitions. `visits`: the number of its visits.

    `changed`: (workspace, key) of the traits that the former query did not have in this version. `number` 0: not live.
    `epoch`: that of the driver which publishes with it, 0 before the first one.
    """

    directory: Directory
    layout: str
    definitions: tuple[Definition, ...]
    number: int = 0
    visits: int = 0
    changed: frozenset[tuple[str, str]] = field(default=frozenset())
    epoch: int = 0

    @property
    def name(self) -> str:
        """The name of the checkpoint."""
        return self.directory.name

    @property
    def visit_files(self) -> Directory:
        """The directory of the files that make the query visit its users."""
        return self.directory / "visits"

    @property
    def is_complete(self) -> bool:
        """Return whether all users are visited, and the history is published."""
        return _COMPLETE in self.directory.names()


class Generations:
    """The checkpoints below one directory. One process uses them."""

    def __init__(self, root: Directory) -> None:
        self._root = root

    def in_force(self, layout: str) -> Generation | None:
        """Return the generation that publishes; None without one of this layout."""
        return max((one for one in self._all() if one.number and one.layout == layout), key=lambda one: one.number, default=None)

    def open(self, name: str, layout: str, definitions: Sequence[Definition], *, live: bool) -> Generation:
        """Return the generation of this name, a new one if there is none. `live`: it publishes from the beginning."""
        directory = self._root / name
        if live:
            directory.delete()  # of a silent query, without the former one
        (directory / "visits").make()
        _write(directory, _DEFINITIONS, {"layout": layout, "definitions": [asdict(one) for one in definitions]})
        made = Generation(directory, layout, tuple(definitions))
        return self.make_live(made, None, 0) if live else self._silent_again(made)

    def make_live(self, generation: Generation, former: Generation | None, visits: int) -> Generation:
        """Let a generation publish. The former one is stopped: it is not in force from here on."""
        known = set(former.definitions) if former is not None else set()
        changed = frozenset((one.workspace, one.key) for one in generation.definitions if one not in known)
        for number in range(visits):
            generation.visit_files.write(f"{number:06d}", str(visits))
        number = 1 + max((one.number for one in self._all()), default=0)
        live = replace(generation, number=number, visits=visits, changed=changed)
        _write_live(live)
        return live

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
        """Note that a generation is complete, and delete all other checkpoints."""
        generation.directory.write(_COMPLETE, "")
        self.delete_others(generation.name)

    def delete_others(self, *names: str) -> None:
        """Delete the checkpoints with other names."""
        for name in self._root.names():
            if name not in names and (self._root / name).exists():
                (self._root / name).delete()

    def _silent_again(self, generation: Generation) -> Generation:
        """Undo a handover that did not come to its end."""
        for name in generation.visit_files.names():
            generation.visit_files.remove(name)
        return generation

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
        definitions = tuple(Definition(**{**one, "former": tuple(one["former"])}) for one in found["definitions"])
        changed = frozenset((workspace, key) for workspace, key in live["changed"])
        return Generation(directory, found["layout"], definitions, live["number"], live["visits"], changed, live["epoch"])


def _live(directory: Directory) -> dict[str, Any]:
    """Return the content of `live.json`, which releases before epochs wrote without one."""
    return {"number": 0, "visits": 0, "changed": [], "epoch": 0, **json.loads(directory.read(_LIVE) or "{}")}


def _write_live(generation: Generation) -> None:
    live = {"number": generation.number, "visits": generation.visits, "changed": sorted(generation.changed)}
    _write(generation.directory, _LIVE, {**live, "epoch": generation.epoch})


def _write(directory: Directory, file: str, content: Any) -> None:
    directory.write(file, json.dumps(content))
