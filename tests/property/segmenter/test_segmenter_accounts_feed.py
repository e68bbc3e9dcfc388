"""Several users and their accounts against brute force: at every instant the members are correct, with one change each.

All records between users and accounts are delivered after each step and after each half second, so the feed must be exact.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.segmenter.segmenting import MemorySegmenter

USERS = ("u1", "u2", "u3", "u4")
GRID_MS = 500
LATELY = {"event": "A", "within": "2s"}
EVER = {"event": "B"}
PRO = {"trait": "plan", "op": "eq", "value": "pro"}
Doc = dict[str, Any]


@dataclass
class Person:
    """One user in the brute-force model."""

    known: bool = False
    account: str | None = None
    pro: bool = False
    lists: set[str] = field(default_factory=set)
    times: list[tuple[str, int]] = field(default_factory=list)


@dataclass
class World:
    """The segmenter, and the model of its output."""

    restarts: bool
    segmenter: MemorySegmenter = field(default_factory=MemorySegmenter)
    people: dict[str, Person] = field(default_factory=lambda: {user: Person() for user in USERS})
    definitions: dict[str, Doc] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    emitted: dict[tuple[str, str], int] = field(default_factory=dict)
    now_ms: int = 10_000

    def __post_init__(self) -> None:
        self.segmenter.clock(self.now_ms)

    def holds(self, where: Doc, user: str) -> bool:
        person = self.people[user]
        ((kind, inner), *_) = where.items()
        match kind:
            case "all" | "any" | "not":
                truths = [self.holds(part, user) for part in ([inner] if kind == "not" else inner)]
                return not truths[0] if kind == "not" else (all if kind == "all" else any)(truths)
            case "segment":
                return self.holds(self.definitions[inner], user)
            case "list":
                return inner in person.lists
            case "trait":
                return person.pro
            case "event":
                since = self.now_ms - 2_000 if "within" in where else -1
                return any(name == inner and time > since for name, time in person.times)
        mates = [name for name, other in self.people.items() if other.account == person.account]
        matching = [self.holds(inner["where"], mate) for mate in mates]
        return person.account is not None and {"any": any, "all": all, "none": none}[inner["match"]](matching)

    def expected(self) -> list[tuple[str, str, str, int, int]]:
        found = []
        for user, person in self.people.items():
            for key, where in self.definitions.items() if person.known else ():
                times = self.emitted.get((user, key), 0)
                if self.holds(where, user) is not (times % 2 == 1):
                    self.emitted[user, key] = times + 1
                    found.append((user, key, "EXITED" if times % 2 else "ENTERED", times + 1, self.now_ms))
        return found

    def check(self) -> None:
        changes = [entry[:5] for entry in self.segmenter.changes()]
        assert sorted(changes) == sorted(self.expected())
        if self.restarts:
            self.segmenter.restart()

    def act(self, kind: str, user: str, what: Any) -> None:
        person, segmenter = self.people[user], self.segmenter
        if kind == "define":
            key, where = what
            self.versions[key] = self.versions.get(key, 0) + 1
            self.definitions[key] = where
            segmenter.define(key, where, version=self.versions[key], action="REVISED" if self.versions[key] > 1 else "DEFINED")
        elif kind == "listed":
            if what or "vips" in person.lists:
                person.known = True
            person.lists = {"vips"} if what else set()
            segmenter.listed(user, "vips", is_on=what)
        elif kind == "event":
            person.known = True
            person.times.append((what, self.now_ms))
            segmenter.track(user, what, self.now_ms)
        else:
            person.known = True
            if kind == "group":
                person.account = what
            else:
                person.pro = what
            traits = {"plan": "pro"} if person.pro else {}
            segmenter.identify(user, traits, self.now_ms, group_id=person.account)
        self.check()

    def pass_time(self, halves: int) -> None:
        """Advance by half a second at a time; the instant itself is over before the next step."""
        for _ in range(halves):
            self.now_ms += GRID_MS
            self.segmenter.clock(self.now_ms)
            self.check()


def none(truths: list[bool]) -> bool:
    return not any(truths)


plain: st.SearchStrategy[Doc] = st.sampled_from(
    [LATELY, EVER, PRO, {"list": "vips"}, {"not": LATELY}, {"all": [EVER, {"not": PRO}]}]
)
inner = st.one_of(plain, plain, st.just({"segment": "s0"}))
leaf = st.builds(lambda match, where: {"account": {"match": match, "where": where}}, st.sampled_from(["any", "all", "none"]), inner)
outer = st.one_of(
    leaf,
    leaf.map(lambda one: {"not": one}),
    leaf.map(lambda one: {"account": one["account"] | {"where": {"segment": "s1"}}}),
    st.builds(lambda one, other: {"all": [one, other]}, leaf, plain),
    st.builds(lambda one, other: {"any": [one, {"segment": "s1"}, other]}, leaf, leaf),
    st.builds(lambda one: {"all": [{"not": {"segment": "s1"}}, one]}, plain),
)
defined: dict[str, st.SearchStrategy[Doc]] = {"s0": plain, "s1": leaf, "s2": outer}
"""Each uses only those before it."""


def step(kind: str, what: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[str, str, Any]]:
    return st.tuples(st.just(kind), st.sampled_from(USERS), what)


steps = st.one_of(
    step("event", st.sampled_from(["A", "B", "C"])),
    step("event", st.sampled_from(["A", "B", "C"])),
    step("group", st.sampled_from(["acme", "other", "acme", None])),
    step("trait", st.booleans()),
    step("listed", st.booleans()),
    *(step("define", st.tuples(st.just(key), where)) for key, where in defined.items()),
)
Script = list[tuple[tuple[str, str, Any], int]]


@settings(max_examples=150, deadline=None)
@given(
    st.tuples(*defined.values()),
    st.lists(st.sampled_from(["acme", "other", None]), min_size=len(USERS), max_size=len(USERS)),
    st.lists(st.tuples(steps, st.integers(0, 3)), max_size=14),
    st.booleans(),
)
def test_the_feed_equals_the_model_at_every_instant(
    first: tuple[Doc, ...], accounts: list[str | None], script: Script, restarts: bool
) -> None:
    world = World(restarts)
    for user, account in zip(USERS, accounts, strict=True):
        world.act("group", user, account)
    for key, where in zip(defined, first, strict=True):
        world.act("define", USERS[0], (key, where))
    for (kind, user, what), halves in script:
        world.act(kind, user, what)
        world.pass_time(halves)
    world.pass_time(5)
    assert world.segmenter.refused == []
    assert world.segmenter.task.refusals == []
