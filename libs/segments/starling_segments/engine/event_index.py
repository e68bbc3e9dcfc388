"""Pure core: from an event to the leaves that it can touch: by its name, then by the text of a property, then by `where`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from starling_segments.language import paths
from starling_segments.language.identity import filter_facts
from starling_segments.language.operators.table import Test
from starling_segments.language.paths import Reader
from starling_segments.language.tree import Check, Filter, Group
from starling_segments.parse.filters import compile_filter, looks_at_traits

T = TypeVar("T")
MAX_INDEXED = 64
"""A list of more texts than that is looked at by its operator, not spread over the index."""


class Led(Protocol):
    """What an event can be led to."""

    @property
    def id(self) -> str: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Route:
    """The leaves that an event goes to when it passes their `where` (None: always). `compares`: with traits."""

    matches: Test | None
    compares: bool
    leaves: tuple[Led, ...]


@dataclass(frozen=True, slots=True)
class Routes:
    """Where events of one name go. `by_text`: those that ask for a certain text of a property, by that text."""

    always: tuple[Route, ...]
    by_text: tuple[tuple[Reader, Mapping[str, tuple[Route, ...]]], ...]

    @property
    def lead_nowhere(self) -> bool:
        """Whether no leaf can want such an event."""
        return not self.always and not self.by_text

    def of(self, properties: Mapping[str, Any]) -> list[Route]:
        """The routes of an event with those properties."""
        found = list(self.always)
        for read, by_text in self.by_text:
            text = read(properties)
            if text.__class__ is str:
                found += by_text.get(text, ())
        return found


@dataclass(frozen=True, slots=True)
class Way:
    """From events of a name, or a prefix of names, to a leaf. Made by `way`.

    `facts`: equal for equal `where`s. `texts`: the property and its texts without one of which `where` is false.
    """

    pattern: str
    leaf: Led
    where: Filter | None
    facts: str
    matches: Test | None
    texts: tuple[str, tuple[str, ...]] | None


def way(pattern: str, leaf: Led, where: Filter | None) -> Way:
    """See `Way`."""
    texts = None if where is None else _texts(where)
    alone = texts is not None and isinstance(where, Check)  # being found under the text is all that is asked
    matches = None if where is None or alone else compile_filter(where)
    return Way(pattern, leaf, where, repr(filter_facts(where)), matches, texts)


@dataclass(frozen=True, slots=True)
class Router:
    """All ways. `by_prefix` are the patterns that end in `*`, without it."""

    by_name: Mapping[str, tuple[Way, ...]]
    by_prefix: Mapping[str, tuple[Way, ...]]

    def narrowed(self, kept: Mapping[str, Led]) -> Router:
        """The ways to those leaves alone."""
        ways = (way for group in (self.by_name, self.by_prefix) for ways in group.values() for way in ways)
        return router(
            Way(way.pattern, kept[way.leaf.id], way.where, way.facts, way.matches, way.texts) for way in ways if way.leaf.id in kept
        )

    def find(self, name: str) -> Routes:
        """Where events of that name go; a leaf that two patterns lead to is led to once."""
        ways = list(self.by_name.get(name, ()))
        for prefix, more in self.by_prefix.items():
            if name.startswith(prefix):
                ways += more
        by_leaf: dict[str, list[Way]] = {}
        for one in ways:
            by_leaf.setdefault(one.leaf.id, []).append(one)
        return _routes([found[0] if len(found) == 1 else _joined(found) for found in by_leaf.values()])


def router(ways: Iterable[Way]) -> Router:
    """The ways, by pattern."""
    by_name: dict[str, list[Way]] = {}
    by_prefix: dict[str, list[Way]] = {}
    for one in ways:
        if one.pattern.endswith("*"):
            by_prefix.setdefault(one.pattern[:-1], []).append(one)
        else:
            by_name.setdefault(one.pattern, []).append(one)
    return Router(_frozen(by_name), _frozen(by_prefix))


def any_of(wheres: Collection[Filter | None]) -> Filter | None:
    """What passes one of them."""
    known = [where for where in wheres if where is not None]
    if len(known) < len(wheres):
        return None
    return known[0] if len(known) == 1 else Group("any", tuple(known))


def _joined(ways: list[Way]) -> Way:
    return way(ways[0].pattern, ways[0].leaf, any_of([one.where for one in ways]))


def _routes(ways: list[Way]) -> Routes:
    """Leaves with the same `where` stand behind one test."""
    behind: dict[str, list[Way]] = {}
    for one in ways:
        behind.setdefault(one.facts, []).append(one)
    always: list[Route] = []
    by_text: dict[str, dict[str, list[Route]]] = {}
    for together in behind.values():
        first = together[0]
        route = Route(first.matches, looks_at_traits(first.where), tuple(one.leaf for one in together))
        if first.texts is None:
            always.append(route)
            continue
        path, texts = first.texts
        for text in texts:
            by_text.setdefault(path, {}).setdefault(text, []).append(route)
    return Routes(tuple(always), tuple((paths.reader(path), _frozen(routes)) for path, routes in by_text.items()))


def _texts(where: Filter) -> tuple[str, tuple[str, ...]] | None:
    if isinstance(where, Group):
        found = (_texts(part) for part in where.parts) if where.kind == "all" else iter(())
        return next((texts for texts in found if texts is not None), None)
    if not isinstance(where, Check) or where.source != "property" or where.predicate.ignore_case or where.path is None:
        return None
    operand = where.predicate.operand
    texts = [operand] if where.predicate.op == "eq" else operand if where.predicate.op == "in" else []
    if not 0 < len(texts) <= MAX_INDEXED or not all(type(text) is str for text in texts):
        return None
    return where.path, tuple(dict.fromkeys(texts))


def _frozen(lists: Mapping[str, list[T]]) -> Mapping[str, tuple[T, ...]]:
    return {key: tuple(items) for key, items in lists.items()}
