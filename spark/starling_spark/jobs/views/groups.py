"""Adapter: the groups of views that one query computes, as its checkpoints keep them.

Views that begin together read their topic once. A view that is added later, or has a new version, begins with a query of its own,
because the state of a query that has read the topic cannot count former events of another view.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from typing import Final, NamedTuple

from starling_spark.directories import Directory
from starling_spark.jobs.views.view import View

_FILE: Final = "views.json"
_ALONE: Final = re.compile(r"(?P<name>.+)-v(?P<version>\d+)-f\d+-s.+")
_TOGETHER: Final = re.compile(r"together-[0-9a-f]{16}-f\d+-s.+")


class Member(NamedTuple):
    """A view of a group: its version, and the types of its measures, such as `decimal(24,6)`."""

    name: str
    version: int
    types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Views of one topic, with windows of one length, that one query computes.

    `directory`: the name of the checkpoint; `views`: by their number in its state; `columns`: the types of the sums in the state;
    `slots`: by number of the view, the columns of its measures. A single view has columns of its own names instead, as in the
    checkpoints of former releases.
    """

    directory: str
    views: Mapping[int, View]
    columns: tuple[str, ...]
    slots: Mapping[int, tuple[int, ...]]

    @property
    def is_together(self) -> bool:
        """Whether the state is one of several views, of which some may no longer be defined."""
        return _TOGETHER.fullmatch(self.directory) is not None

    @property
    def name(self) -> str:
        """The name of the query."""
        return "+".join(view.name for view in self.views.values())

    @property
    def topic(self) -> str:
        """The topic, without a prefix."""
        return next(iter(self.views.values())).topic


class Checkpoints:
    """The checkpoints of the views. `ending`: of the names of those with the present settings."""

    def __init__(self, directory: Directory, ending: str) -> None:
        self._directory = directory
        self._ending = ending
        self._members = {name: members for name in directory.names() if (members := self._members_of(name))}
        self._used: set[str] = set()
        self._published: set[str] = set()

    def groups(self, views: Sequence[View], types_of: Callable[[View], tuple[str, ...]]) -> list[Group]:
        """Return the groups of all views: those of the checkpoints, and new ones of the others, by topic and length of the windows.

        `types_of`: the types of a view's measures. Raises: OSError, Py4JJavaError.
        """
        present = {name: members for name, members in self._members.items() if name.endswith(f"-{self._ending}")}
        places = {(one.name, one.version): name for name, members in sorted(present.items()) for one in members}

        def kind(view: View) -> tuple[str, str, int]:
            return places.get((view.name, view.version), ""), view.topic, view.window_hours

        found = []
        for (name, _, _), same in groupby(sorted(views, key=kind), kind):
            own = list(same)
            found.append(self._group(name, own) if name else self._new_group(own, types_of))
        self._used |= {group.directory for group in found}
        return found

    def _new_group(self, views: Sequence[View], types_of: Callable[[View], tuple[str, ...]]) -> Group:
        members = tuple(Member(view.name, view.version, types_of(view)) for view in views)
        name = f"{members[0].name}-v{members[0].version}-{self._ending}"
        if len(members) > 1:
            digest = sha256(json.dumps(members).encode()).hexdigest()[:16]
            name = f"together-{digest}-{self._ending}"
            (self._directory / name).make()
            (self._directory / name).write(_FILE, json.dumps(members))
        self._members[name] = members
        return self._group(name, views)

    def _group(self, name: str, views: Iterable[View]) -> Group:
        defined = {(view.name, view.version): view for view in views}
        places = [(number, (one.name, one.version)) for number, one in enumerate(self._members[name])]
        numbered = {number: defined[place] for number, place in places if place in defined}
        columns, slots = slots_of([one.types for one in self._members[name]])
        return Group(name, numbered, columns, {number: slots[number] for number in numbered})

    def publish(self, group: Group) -> None:
        """Note that the views of a group are published, and delete the checkpoints whose views are all published by other ones."""
        self._published |= {view.name for view in group.views.values()}
        for name, members in list(self._members.items()):
            if name not in self._used and self._published.issuperset(one.name for one in members):
                (self._directory / name).delete()
                del self._members[name]

    def _members_of(self, name: str) -> tuple[Member, ...]:
        """Return the views of a checkpoint; none if it is that of another query."""
        if _TOGETHER.fullmatch(name):
            listed = json.loads((self._directory / name).read(_FILE) or "[]")
            return tuple(Member(view, version, tuple(types)) for view, version, types in listed)
        alone = _ALONE.fullmatch(name)
        return (Member(alone["name"], int(alone["version"]), ()),) if alone else ()


def slots_of(types: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], list[tuple[int, ...]]]:
    """Return the types of the columns for all sums, and the columns of each view. `types`: of the measures of each view.

    Measures of one view have different columns. Views share them.
    """
    columns: list[str] = []
    found = []
    for own in types:
        taken: list[int] = []
        for one in own:
            free = [number for number, column in enumerate(columns) if column == one and number not in taken]
            if not free:
                columns.append(one)
            taken.append(free[0] if free else len(columns) - 1)
        found.append(tuple(taken))
    return tuple(columns), found
