"""Pure core: finds the leaf nodes that an event can match: by name, then by the text of a property, then by `where`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from starling_segments.language import paths
from starling_segments.language.identity import filter_facts
from starling_segments.language.operators.table import Test
from starling_segments.language.paths import Reader
from starling_segments.language.tree import Check, Filter, Group
from starling_segments.parse.filters import compile_filter, uses_traits

T = TypeVar("T")
MAX_INDEXED = 64
"""A condition with more texts than this is tested by its operator instead of indexed by text."""


class RouteTarget(Protocol):
    """A destination of routes, such as a leaf node."""

    @property
    def id(self) -> str: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Route:
    """Leaf nodes behind one test, `where` (None: always true). `compares`: whether the test compares with traits."""

    matches: Test | None
    compares: bool
    leaves: tuple[RouteTarget, ...]


@dataclass(frozen=True, slots=True)
class Routes:
    """The routes of one event name. `by_text`: reader of a property, and text -> the routes of conditions that require it."""

    always: tuple[Route, ...]
    by_text: tuple[tuple[Reader, Mapping[str, tuple[Route, ...]]], ...]

    @property
    def is_empty(self) -> bool:
        """Return whether no leaf node can match such an event."""
        return not self.always and not self.by_text

    def of(self, properties: Mapping[str, Any]) -> list[Route]:
        """Return the routes for an event with these properties."""
        found = list(self.always)
        for read, by_text in self.by_text:
            text = read(properties)
            if text.__class__ is str:
                found += by_text.get(text, ())
        return found


@dataclass(frozen=True, slots=True)
class Subscription:
    """The subscription of a leaf node to an event name or prefix. Made by `subscription`.

    `facts`: equal for equal `where`s. `texts`: a property and texts of which `where` requires one.
    """

    pattern: str
    leaf: RouteTarget
    where: Filter | None
    facts: str
    matches: Test | None
    texts: tuple[str, tuple[str, ...]] | None


def subscription(pattern: str, leaf: RouteTarget, where: Filter | None) -> Subscription:
    """Return a subscription, with its `where` compiled."""
    texts = None if where is None else _texts(where)
    alone = texts is not None and isinstance(where, Check)  # the lookup by text is the whole test
    matches = None if where is None or alone else compile_filter(where)
    return Subscription(pattern, leaf, where, repr(filter_facts(where)), matches, texts)


@dataclass(frozen=True, slots=True)
class Router:
    """All subscriptions. `by_prefix`: patterns that end in `*`, without the `*`."""

    by_name: Mapping[str, tuple[Subscription, ...]]
    by_prefix: Mapping[str, tuple[Subscription, ...]]

    def narrowed(self, kept: Mapping[str, RouteTarget]) -> Router:
        """Return a router with the subscriptions of these leaf nodes only."""
        subscriptions = (
            subscription
            for group in (self.by_name, self.by_prefix)
            for subscriptions in group.values()
            for subscription in subscriptions
        )
        return router(
            Subscription(
                subscription.pattern,
                kept[subscription.leaf.id],
                subscription.where,
                subscription.facts,
                subscription.matches,
                subscription.texts,
            )
            for subscription in subscriptions
            if subscription.leaf.id in kept
        )

    def find(self, name: str) -> Routes:
        """Return the routes of an event name. A leaf node with two matching patterns has one route."""
        subscriptions = list(self.by_name.get(name, ()))
        for prefix, more in self.by_prefix.items():
            if name.startswith(prefix):
                subscriptions += more
        by_leaf: dict[str, list[Subscription]] = {}
        for one in subscriptions:
            by_leaf.setdefault(one.leaf.id, []).append(one)
        return _routes([found[0] if len(found) == 1 else _joined(found) for found in by_leaf.values()])


def router(subscriptions: Iterable[Subscription]) -> Router:
    """Return a router of these subscriptions."""
    by_name: dict[str, list[Subscription]] = {}
    by_prefix: dict[str, list[Subscription]] = {}
    for one in subscriptions:
        if one.pattern.endswith("*"):
            by_prefix.setdefault(one.pattern[:-1], []).append(one)
        else:
            by_name.setdefault(one.pattern, []).append(one)
    return Router(_frozen(by_name), _frozen(by_prefix))


def any_of(wheres: Collection[Filter | None]) -> Filter | None:
    """Return a filter that is true when one of these is; None: always true."""
    known = [where for where in wheres if where is not None]
    if len(known) < len(wheres):
        return None
    return known[0] if len(known) == 1 else Group("any", tuple(known))


def _joined(subscriptions: list[Subscription]) -> Subscription:
    return subscription(subscriptions[0].pattern, subscriptions[0].leaf, any_of([one.where for one in subscriptions]))


def _routes(subscriptions: list[Subscription]) -> Routes:
    """Return the routes; leaf nodes with equal `where` share one test."""
    behind: dict[str, list[Subscription]] = {}
    for one in subscriptions:
        behind.setdefault(one.facts, []).append(one)
    always: list[Route] = []
    by_text: dict[str, dict[str, list[Route]]] = {}
    for together in behind.values():
        first = together[0]
        route = Route(first.matches, uses_traits(first.where), tuple(one.leaf for one in together))
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
