"""Adapter: the checkpoints of queries, and which of them publishes.

A checkpoint has beside Spark's own files: `definitions.json`; `visits`, a directory that the query reads as a stream, where each
file makes it visit a part of its users; `live.json`, from the moment at which the query publishes. Of several live ones the newest
is in force: the others were stopped before it became live.
"""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from starling_spark.jobs.profiles.definitions.in_force import Definition

_DEFINITIONS, _LIVE, _COMPLETE = "definitions.json", "live.json", "complete"


@dataclass(frozen=True, slots=True)
class Generation:
    """A query's checkpoint. `layout`: names what its state depends on beside the definitions. `visits`: the number of its visits.

    `changed`: (workspace, key) of the traits that the former query did not have in this version. `number` 0: not live.
    """

    directory: Path
    layout: str
    definitions: tuple[Definition, ...]
    number: int = 0
    visits: int = 0
    changed: frozenset[tuple[str, str]] = field(default=frozenset())

    @property
    def name(self) -> str:
        """The name of the checkpoint."""
        return self.directory.name

    @property
    def visit_files(self) -> Path:
        """The directory of the files that make the query visit its users."""
        return self.directory / "visits"

    @property
    def is_complete(self) -> bool:
        """Return whether all users are visited, and the history is published."""
        return (self.directory / _COMPLETE).exists()


class Generations:
    """The checkpoints below one directory. One process uses them."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def in_force(self, layout: str) -> Generation | None:
        """Return the generation that publishes; None without one of this layout."""
        return max((one for one in self._all() if one.number and one.layout == layout), key=lambda one: one.number, default=None)

    def open(self, name: str, layout: str, definitions: Sequence[Definition], *, live: bool) -> Generation:
        """Return the generation of this name, a new one if there is none. `live`: it publishes from the beginning."""
        directory = self._root / name
        if live and directory.exists():
            shutil.rmtree(directory)  # of a silent query, without the former one
        (directory / "visits").mkdir(parents=True, exist_ok=True)
        _write(directory / _DEFINITIONS, {"layout": layout, "definitions": [asdict(one) for one in definitions]})
        made = Generation(directory, layout, tuple(definitions))
        return self.make_live(made, None, 0) if live else self._silent_again(made)

    def make_live(self, generation: Generation, former: Generation | None, visits: int) -> Generation:
        """Let a generation publish. The former one is stopped: it is not in force from here on."""
        known = set(former.definitions) if former is not None else set()
        changed = [(one.workspace, one.key) for one in generation.definitions if one not in known]
        for number in range(visits):
            _write_text(generation.visit_files / f"{number:06d}", str(visits))
        number = 1 + max((one.number for one in self._all()), default=0)
        _write(generation.directory / _LIVE, {"number": number, "visits": visits, "changed": changed})
        return self._read(generation.directory)

    def complete(self, generation: Generation) -> None:
        """Note that a generation is complete, and delete all other checkpoints."""
        (generation.directory / _COMPLETE).touch()
        self.delete_others(generation.name)

    def delete_others(self, *names: str) -> None:
        """Delete the checkpoints with other names."""
        for directory in self._root.iterdir():
            if directory.is_dir() and directory.name not in names:
                shutil.rmtree(directory)

    def _silent_again(self, generation: Generation) -> Generation:
        """Undo a handover that did not come to its end."""
        for path in generation.visit_files.iterdir():
            path.unlink()
        return generation

    def _all(self) -> Iterator[Generation]:
        for path in self._root.glob(f"*/{_DEFINITIONS}"):
            yield self._read(path.parent)

    def _read(self, directory: Path) -> Generation:
        found: dict[str, Any] = json.loads((directory / _DEFINITIONS).read_text())
        path = directory / _LIVE
        live: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"number": 0, "visits": 0, "changed": []}
        definitions = tuple(Definition(**{**one, "former": tuple(one["former"])}) for one in found["definitions"])
        changed = frozenset((workspace, key) for workspace, key in live["changed"])
        return Generation(directory, found["layout"], definitions, live["number"], live["visits"], changed)


def _write(path: Path, content: Any) -> None:
    _write_text(path, json.dumps(content))


def _write_text(path: Path, text: str) -> None:
    """Write a file as a whole, durably."""
    temporary = path.with_name(f".{path.name}.new")
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
