"""Pure core: the compiled form of a set of segments. Immutable: `engine/evaluator.py` applies it to the states of users."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import cast

from starling_segments.engine.compiled import CompiledAccount, CompiledSegment
from starling_segments.engine.event_index import Route, Router, Routes
from starling_segments.engine.sequences.sequence import FoldingLeaf, SequenceLeaf
from starling_segments.engine.trait_conditions import HeldLeaf, TraitLeaf

_CACHED_NAMES = 4096


@dataclass(frozen=True)
class Plan:
    """A set of segments as compiled by `compile_plan`, with everything that can be derived from it once.

    `segments`: each follows the segments that it uses. `event_leaves`, `trait_leaves`: leaf node id -> leaf node; the id is also
    the key of its accumulator in a state. `router`: finds the leaf nodes of an event. `lists`: list key -> bit mask of the
    segments with a condition on it. `accounts`: the conditions on the users of an account. `reads_context`, `reads_traits`:
    whether any `where` reads the context of events, or compares with traits.
    """

    segments: tuple[CompiledSegment, ...]
    event_leaves: Mapping[str, FoldingLeaf]
    trait_leaves: Mapping[str, TraitLeaf | HeldLeaf]
    router: Router
    lists: Mapping[str, int] = field(default_factory=dict)
    accounts: tuple[CompiledAccount, ...] = ()
    reads_context: bool = False
    reads_traits: bool = False

    held_leaves: tuple[HeldLeaf, ...] = field(init=False, repr=False, compare=False, default=())
    """The leaf nodes of conditions with `held_for` or `held_less_than`."""
    pausing_leaves: frozenset[str] = field(init=False, repr=False, compare=False, default=frozenset())
    """The ids of the sequences with a `not … for` step."""
    routes: Callable[[str], Routes] = field(init=False, repr=False, compare=False, default=None)  # type: ignore[assignment]
    """Event name -> routes, cached."""

    def __post_init__(self) -> None:
        held = tuple(leaf for leaf in self.trait_leaves.values() if isinstance(leaf, HeldLeaf))
        pausing = frozenset(key for key, leaf in self.event_leaves.items() if isinstance(leaf, SequenceLeaf) and leaf.pauses)
        object.__setattr__(self, "held_leaves", held)
        object.__setattr__(self, "pausing_leaves", pausing)
        object.__setattr__(self, "routes", lru_cache(_CACHED_NAMES)(self.router.find))

    @property
    def leaves(self) -> tuple[str, ...]:
        """The ids of the leaf nodes that keep an accumulator in the state."""
        return (*self.event_leaves, *(leaf.id for leaf in self.held_leaves))

    @property
    def needs_profiles(self) -> bool:
        """Return whether a fold of history needs past profiles: for `held_for`, or for a `where` that compares with traits."""
        return self.reads_traits or bool(self.held_leaves)

    @property
    def follows_time(self) -> bool:
        """Return whether a fold of history needs the stream time at which each record was folded originally."""
        return self.needs_profiles or bool(self.pausing_leaves)

    def restricted_to(self, leaf_ids: Collection[str]) -> Plan:
        """Return a plan with these leaf nodes and without segments, to fold history into new leaf nodes."""
        events = {key: leaf.without_segments() for key, leaf in self.event_leaves.items() if key in leaf_ids}
        held: dict[str, TraitLeaf | HeldLeaf] = {
            leaf.id: leaf.without_segments() for leaf in self.held_leaves if leaf.id in leaf_ids
        }
        return Plan(
            (), events, held, self.router.narrowed(events), reads_context=self.reads_context, reads_traits=self.reads_traits
        )

    def touches(self, event_name: str) -> bool:
        """Return whether events of that name can match any leaf node."""
        return not self.routes(event_name).is_empty

    def reads(self, event_name: str) -> bool:
        """Return whether any leaf node reads the content of events of that name; a plain count reads none."""
        routes = self.routes(event_name)
        return bool(routes.by_text) or any(route.matches or any(leaf.reads for leaf in leaves_of(route)) for route in routes.always)


def leaves_of(route: Route) -> tuple[FoldingLeaf, ...]:
    """Return the leaf nodes of a route: a plan's routes lead to nothing else."""
    return cast("tuple[FoldingLeaf, ...]", route.leaves)
