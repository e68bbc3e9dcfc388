"""Pure core: segments -> plan. Everything that can be worked out once is worked out here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

from starling_segments.aggregates.measure_table import kind_of, quotient
from starling_segments.compile.leaf_table import BrokenPlan, LeafTable
from starling_segments.engine.compiled import CompiledAccount, CompiledSegment
from starling_segments.engine.event_index import router
from starling_segments.engine.explain import Node, earliest, nothing
from starling_segments.engine.leaves import EventLeaf, Question, earlier, threshold_of
from starling_segments.engine.plan import Plan
from starling_segments.engine.state import UserState
from starling_segments.engine.trait_conditions import held, is_in
from starling_segments.language.identity import condition_facts, meanings
from starling_segments.language.tree import (
    Account,
    Bucket,
    Calendar,
    Condition,
    EventMeasure,
    Everyone,
    FirstTime,
    Group,
    InList,
    InSegment,
    Leaf,
    Measure,
    Ratio,
    Regularly,
    Segment,
    Trait,
    Window,
    leaves,
)  # fmt: skip
from starling_segments.language.tree import Sequence as Steps
from starling_segments.parse.filters import looks_at_context, looks_at_traits
from starling_segments.parse.groups import combine
from starling_segments.parse.windows import contains, next_turn

__all__ = ["BrokenPlan", "compile_plan"]


def compile_plan(segments: Sequence[Segment]) -> Plan:
    """One plan for all the segments: shared leaves once, a segment after those it is built on.

    Raises: BrokenPlan (the parser refuses such definitions one by one; together they may still not fit).
    """
    ordered = _in_order(segments)
    building = _Building({segment.key: segment for segment in ordered})
    dependents = {segment.key: 0 for segment in ordered}
    for i, segment in enumerate(ordered):
        for used in segment.uses:
            dependents[used] |= 1 << i
    compiled = []
    for i, segment in enumerate(ordered):
        building.mask = 1 << i
        tree = building.node(segment.where, "/where")
        building.trees[segment.key] = tree
        compiled.append(CompiledSegment(segment, tree.holds, tree, dependents[segment.key]))
    table = building.table
    return Plan(
        tuple(compiled),
        table.event_leaves,
        table.trait_leaves,
        router(table.ways),
        building.lists,
        tuple(building.accounts),
        reads_context=any(map(looks_at_context, table.wheres)),
        reads_traits=any(map(looks_at_traits, table.wheres)),
    )


def _in_order(segments: Sequence[Segment]) -> list[Segment]:
    """Each after those it uses, otherwise as given."""
    by_key = {segment.key: segment for segment in segments}
    done: dict[str, Segment] = {}

    def visit(key: str, way: tuple[str, ...]) -> None:
        if key in way:
            raise BrokenPlan("segments are built on each other: " + " → ".join([*way, key]))
        if key not in by_key:
            raise BrokenPlan(f"segment {way[-1]!r} uses {key!r}, which is not there")
        if key in done:
            return
        for used in sorted(by_key[key].uses):
            visit(used, (*way, key))
        done[key] = by_key[key]

    for segment in segments:
        visit(segment.key, ())
    return list(done.values())


@dataclass
class _Building:
    """What grows while the segments are compiled one by one. `mask`: the segment at hand."""

    segments: Mapping[str, Segment]
    table: LeafTable = field(default_factory=LeafTable)
    trees: dict[str, Node] = field(default_factory=dict)
    lists: dict[str, int] = field(default_factory=dict)
    accounts: list[CompiledAccount] = field(default_factory=list)
    mask: int = 0

    def node(self, condition: Condition, pointer: str) -> Node:
        if isinstance(condition, Group):
            ends = ["/not"] if condition.kind == "not" else [f"/{condition.kind}/{i}" for i in range(len(condition.parts))]
            children = tuple(self.node(part, pointer + end) for part, end in zip(condition.parts, ends, strict=True))
            holds = combine(condition.kind, [child.holds for child in children])
            return Node(pointer, condition.kind, holds, nothing, earliest(children), children)
        return self.leaf(condition, pointer)

    def leaf(self, leaf: Leaf, pointer: str) -> Node:  # noqa: PLR0911 - one line a kind of leaf
        match leaf:
            case Trait():
                return self.trait(leaf, pointer)
            case EventMeasure():
                return self.measure(leaf, pointer)
            case FirstTime():
                return self.asked(self.table.first(leaf), first_is_inside(leaf.window), pointer, "first_time")
            case Regularly():
                return self.asked(self.table.regular(leaf), keeps_on(leaf), pointer, "regularly")
            case Steps():
                return self.sequence(leaf, pointer)
            case InSegment(key):
                return self.nested(key, pointer)
            case InList(key):
                self.lists[key] = self.lists.get(key, 0) | self.mask
                return Node(pointer, "list", lambda state, _now: key in state.lists, lambda _state, _now: key, nothing)
            case Bucket():
                return _bucket(leaf, pointer)
            case Account():
                return self.account(leaf, pointer)
            case Everyone():
                return Node(pointer, "everyone", lambda state, _now: state.known, nothing, nothing)
            case _:
                assert_never(leaf)

    def measure(self, leaf: EventMeasure, pointer: str) -> Node:
        predicate, measure = leaf.predicate, leaf.measure
        if isinstance(measure, Ratio):
            return self.ratio(leaf, measure, pointer)
        question = Question(predicate.holds, moving=predicate.next_change, back=_back(measure))
        if kind_of(measure).by_ones and not isinstance(measure.window, Calendar):
            question.threshold = threshold_of(predicate)
        return self.asked(self.table.measured(measure), question, pointer, "event")

    def asked(self, leaf: EventLeaf, question: Question, pointer: str, kind: str) -> Node:
        question.mask = self.mask
        leaf.ask(question)
        return Node(
            pointer,
            kind,
            lambda state, now: question.holds(leaf.observe(state, question, now), now),
            lambda state, now: leaf.observe(state, question, now),
            lambda state, now: leaf.turns(state, question, now),
        )

    def ratio(self, leaf: EventMeasure, ratio: Ratio, pointer: str) -> Node:
        """Either part may change the truth with any change of its value."""
        sides = []
        for part in (ratio.of, ratio.to):
            question = Question(lambda value, _now: value, back=_back(part), mask=self.mask)
            side = self.table.measured(part)
            side.ask(question)
            sides.append((side, question))
        (of, of_question), (to, to_question) = sides
        test = leaf.predicate.holds

        def observed(state: UserState, now: int) -> float | None:
            return quotient(of.observe(state, of_question, now), to.observe(state, to_question, now))

        return Node(
            pointer,
            "event",
            lambda state, now: test(observed(state, now), now),
            observed,
            lambda state, now: earlier(of.turns(state, of_question, now), to.turns(state, to_question, now)),
        )

    def sequence(self, leaf: Steps, pointer: str) -> Node:
        kept = self.table.sequence(leaf)
        kept.mask |= self.mask
        return Node(pointer, "sequence", kept.holds, kept.observe, kept.turns)

    def trait(self, leaf: Trait, pointer: str) -> Node:
        if leaf.held_for_ms is not None or leaf.held_less_than_ms is not None:
            return self.held(leaf, pointer)
        kept = self.table.trait(leaf)
        kept.mask |= self.mask
        read, test = kept.read, leaf.predicate.holds
        return Node(
            pointer,
            "trait",
            lambda state, now: test(read(state.traits), now),
            lambda state, _now: read(state.traits),
            kept.next_change,
        )

    def held(self, leaf: Trait, pointer: str) -> Node:
        kept, question = self.table.held(leaf), held(leaf)
        question.mask = self.mask
        kept.ask(question)
        change, read = leaf.predicate.next_change, kept.read

        def turns(state: UserState, now: int) -> int | None:
            moved = None if change is None else change(read(state.traits), now)
            return earlier(moved, kept.turns(state, question, now))

        return Node(
            pointer,
            "trait",
            lambda state, now: question.holds(kept.since(state), now),
            lambda state, _now: {"value": read(state.traits), "since": kept.since(state)},
            turns,
        )

    def nested(self, key: str, pointer: str) -> Node:
        tree = self.trees[key]

        def holds(state: UserState, _now: int) -> bool:
            membership = state.memberships.get(key)
            return membership is not None and membership.member

        return Node(pointer, "segment", holds, lambda _state, _now: key, tree.next_change)

    def account(self, leaf: Account, pointer: str) -> Node:
        """The others are told of by `on_account`, the user's own answer is found here."""
        inner = self.node(leaf.where, pointer + "/account/where")
        uses = frozenset(part.key for part in leaves(leaf.where) if isinstance(part, InSegment))
        # As the other users of the account answer it: with another meaning of a segment that it asks for it is another question.
        found = self.table.identity("account", condition_facts(leaf.where), meanings(uses, self.segments))
        self.accounts.append(CompiledAccount(found, inner.holds, self.mask, uses))

        def observed(state: UserState, now: int) -> dict[str, Any] | None:
            if state.account is None:
                return None
            users, matching = state.account.others.get(found, (0, 0))
            return {"account": state.account.id, "users": users + 1, "matching": matching + inner.holds(state, now)}

        def holds(state: UserState, now: int) -> bool:
            seen = observed(state, now)
            if seen is None:
                return False
            if leaf.match == "all":
                return bool(seen["matching"] == seen["users"])
            return bool(seen["matching"] > 0) is (leaf.match == "any")

        return Node(pointer, "account", holds, observed, inner.next_change, (inner,))


def _back(measure: Measure) -> int:
    return measure.window.back if isinstance(measure.window, Calendar) else 0


def _bucket(leaf: Bucket, pointer: str) -> Node:
    return Node(pointer, "bucket", lambda state, _now: is_in(leaf, state.user_id), lambda _state, _now: leaf.salt, nothing)


def first_is_inside(window: Window | None) -> Question:
    """Whether the first match (epoch ms, None for none) lies inside the window."""
    if window is None:
        return Question(lambda first, _now: first is not None)
    is_inside, turn = contains(window), next_turn(window)
    return Question(
        lambda first, now: first is not None and is_inside(first, now),
        moving=lambda first, now: None if first is None else turn(first, now),
    )


def keeps_on(leaf: Regularly) -> Question:
    """Whether enough of the last periods have one of the matches (epoch ms)."""
    every, at_least, of = leaf.every_ms, leaf.at_least, leaf.of

    def holds(times: tuple[int, ...], now: int) -> bool:
        if len(times) < at_least:
            return False
        return len({(now - t) // every for t in times if 0 <= now - t < every * of}) >= at_least

    def moving(times: tuple[int, ...], now: int) -> int | None:
        """Each match goes on to the next period when it gets a whole number of periods old."""
        if len(times) < at_least:
            return None
        truth = holds(times, now)
        turns = sorted({t + ((now - t) // every + 1) * every for t in times if now - t < every * of})
        for tried, turn in enumerate(turns, start=1):
            if holds(times, turn) is not truth or tried == _LOOK_AHEAD:
                return turn
        return turns[-1] if turns else None

    return Question(holds, moving=moving)


_LOOK_AHEAD = 8
"""How many such instants are tried out before a timer is set for good measure."""
