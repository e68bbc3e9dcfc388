"""Pure core: the description of a part of the stack, and the order of starting."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TypeAlias

from starling_local.errors import NotPossible

MOST_SILENT_SECONDS = 30.0
"""A liveness check needs no dependency, and a busy machine delays its answer by seconds."""


@dataclass(frozen=True, slots=True)
class HttpProbe:
    """The part is ready, or alive, when a GET returns 200."""

    url: str


@dataclass(frozen=True, slots=True)
class KafkaProbe:
    """Ready when the broker returns cluster metadata with at least one broker; alive when it answers any request."""

    brokers: str


@dataclass(frozen=True, slots=True)
class CqlProbe:
    """Ready, and alive, when the node answers a CQL OPTIONS frame, so that it accepts clients."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class ExitProbe:
    """Ready when the process has ended with 0: the part is a step and not a server."""


Probe: TypeAlias = HttpProbe | KafkaProbe | CqlProbe | ExitProbe


@dataclass(frozen=True, slots=True)
class Preparation:
    """A command that runs before a start while the file `creates` does not exist."""

    command: tuple[str, ...]
    creates: Path


@dataclass(frozen=True, slots=True)
class Part:
    """One process of the stack, with everything that the supervisor needs to run it.

    Shape: `files` are written before each start (path → text); `env` is added to the environment of the caller;
           `ports` maps a name for messages to a port number; `alive` is the liveness check, None if the part has none.
    Units: `grace_seconds` is the time from TERM to KILL; `most_silent_seconds` that without an answer to a liveness check, after
           which the part is restarted.
    """

    name: str
    command: tuple[str, ...]
    probe: Probe
    alive: Probe | None = None
    depends_on: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    ports: Mapping[str, int] = field(default_factory=dict)
    files: Mapping[Path, str] = field(default_factory=dict)
    directories: tuple[Path, ...] = ()
    prepare: Preparation | None = None
    grace_seconds: float = 20.0
    most_silent_seconds: float = MOST_SILENT_SECONDS

    @property
    def is_step(self) -> bool:
        """Return whether the part must end with 0 before the parts that depend on it start."""
        return isinstance(self.probe, ExitProbe)

    def with_java_options(self, options: tuple[str, ...]) -> "Part":
        """Return this part of the JVM with more options in each of its commands."""
        prepare = self.prepare and replace(self.prepare, command=(self.prepare.command[0], *options, *self.prepare.command[1:]))
        return replace(self, command=(self.command[0], *options, *self.command[1:]), prepare=prepare)

    def runs_as(self, other: "Part") -> bool:
        """Return whether a process that was started for `other` has the command, environment and files of this part."""
        return (self.command, self.env, self.files) == (other.command, other.env, other.files)


class PlanError(NotPossible):
    """The parts have no order of starting: a name is unknown, or the dependencies have a cycle."""


def start_order(parts: Iterable[Part]) -> list[Part]:
    """Return the parts, each after its dependencies. Raises PlanError."""
    by_name = {part.name: part for part in parts}
    for part in by_name.values():
        if unknown := set(part.depends_on) - by_name.keys():
            raise PlanError(f"{part.name} depends on {', '.join(sorted(unknown))}, which does not exist")
    try:
        return [
            by_name[name] for name in TopologicalSorter({part.name: part.depends_on for part in by_name.values()}).static_order()
        ]
    except CycleError as error:
        raise PlanError(f"dependency cycle: {' → '.join(error.args[1])}") from error


def with_dependencies(parts: Sequence[Part], wanted: Iterable[str]) -> list[Part]:
    """Return the wanted parts and all their dependencies, in the given order. Raises PlanError for an unknown name."""
    by_name = {part.name: part for part in parts}
    keep: set[str] = set()
    todo = list(wanted)
    while todo:
        name = todo.pop()
        if name not in by_name:
            raise PlanError(f"no part is called {name}; the parts are {', '.join(by_name)}")
        if name not in keep:
            keep.add(name)
            todo.extend(by_name[name].depends_on)
    return [part for part in parts if part.name in keep]
