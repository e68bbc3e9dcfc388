"""Pure core: what a part of the stack is, before anything is started."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from starling_local.errors import NotPossible


@dataclass(frozen=True, slots=True)
class HttpProbe:
    """Ready when a GET answers 200."""

    url: str


@dataclass(frozen=True, slots=True)
class KafkaProbe:
    """Ready when the broker hands out cluster metadata that names a broker."""

    brokers: str


@dataclass(frozen=True, slots=True)
class CqlProbe:
    """Ready when the node answers a CQL OPTIONS frame: it accepts clients."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class ExitProbe:
    """Ready when the process has ended with 0: a step and no server."""


Probe: TypeAlias = HttpProbe | KafkaProbe | CqlProbe | ExitProbe


@dataclass(frozen=True, slots=True)
class Preparation:
    """A command to run once before the first start; done when `creates` exists."""

    command: tuple[str, ...]
    creates: Path


@dataclass(frozen=True, slots=True)
class Part:
    """One process of the stack, complete: the supervisor needs nothing else to run it.

    Shape: `files` are written before each start (path → text); `env` is added to the caller's.
           `ports` maps a name for messages to a port number.
    Units: `grace_seconds` is how long it may take from TERM to KILL.
    """

    name: str
    command: tuple[str, ...]
    probe: Probe
    depends_on: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    ports: Mapping[str, int] = field(default_factory=dict)
    files: Mapping[Path, str] = field(default_factory=dict)
    directories: tuple[Path, ...] = ()
    prepare: Preparation | None = None
    grace_seconds: float = 20.0

    @property
    def is_step(self) -> bool:
        """It ends by itself, and must end well, before what depends on it may start."""
        return isinstance(self.probe, ExitProbe)

    def runs_as(self, other: "Part") -> bool:
        """Whether a process that was started for the other is what this one asks for: what it was given once is the same."""
        return (self.command, self.env, self.files) == (other.command, other.env, other.files)


class PlanError(NotPossible):
    """The parts cannot be put into an order: an unknown name, or a circle."""


def start_order(parts: Iterable[Part]) -> list[Part]:
    """Parts with each after all it depends on; ties keep the given order. Raises PlanError."""
    waiting = list(parts)
    names = {part.name for part in waiting}
    for part in waiting:
        if unknown := set(part.depends_on) - names:
            raise PlanError(f"{part.name} depends on {', '.join(sorted(unknown))}, which is not there")
    placed: list[Part] = []
    while waiting:
        done = {part.name for part in placed}
        free = [part for part in waiting if set(part.depends_on) <= done]
        if not free:
            raise PlanError(f"circle among {', '.join(part.name for part in waiting)}")
        placed.append(free[0])
        waiting.remove(free[0])
    return placed


def with_needs(parts: Sequence[Part], wanted: Iterable[str]) -> list[Part]:
    """The wanted parts and all they depend on, in the given order. Raises PlanError for an unknown name."""
    by_name = {part.name: part for part in parts}
    keep: set[str] = set()
    todo = list(wanted)
    while todo:
        name = todo.pop()
        if name not in by_name:
            raise PlanError(f"no part is called {name}; there are {', '.join(by_name)}")
        if name not in keep:
            keep.add(name)
            todo.extend(by_name[name].depends_on)
    return [part for part in parts if part.name in keep]
