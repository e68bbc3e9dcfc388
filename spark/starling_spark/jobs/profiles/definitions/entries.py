"""Pure core: the definitions of a query over all their changes.

A query keeps its state when definitions change. Each change is a step, with a number. An entry is a definition with the step that
added it and the step that ended it, so the index of an entry names the same trait and version in every state of a user.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from starling_spark.jobs.profiles.definitions.in_force import Definition


@dataclass(frozen=True, slots=True)
class Entry:
    """A definition that is in force from the step `since` on, and from the step `until` on no longer; None: it still is."""

    definition: Definition
    since: int = 0
    until: int | None = None


Entries = tuple[Entry, ...]


def first_entries(definitions: Sequence[Definition], since: int = 0) -> Entries:
    """Return the entries of a new query. `since`: 1 for a query that begins with a step."""
    return tuple(Entry(one, since) for one in definitions)


def in_force(entries: Sequence[Entry]) -> tuple[Definition, ...]:
    """Return the definitions in force after the last step, by workspace and key."""
    found = [entry.definition for entry in entries if entry.until is None]
    return tuple(sorted(found, key=lambda one: (one.workspace, one.key)))


def changed(entries: Sequence[Entry], definitions: Sequence[Definition], step: int) -> Entries:
    """Return the entries after a step to these definitions."""
    wanted, known = set(definitions), set(in_force(entries))
    kept = [entry if entry.until is not None or entry.definition in wanted else replace(entry, until=step) for entry in entries]
    return (*kept, *(Entry(one, step) for one in definitions if one not in known))
