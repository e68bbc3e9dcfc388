"""The feed of a whole task, with several users, definitions that change and restarts, against one oracle a user."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.segments.folded import put
from tests.property.segments.oracle import GRID_MS, Oracle
from tests.property.segments.stories import WORLDS, Step, stories
from tests.unit.segmenter.segmenting import FeedEntry, MemorySegmenter

USERS = ("u1", "u2", "u3")
WORLD = WORLDS[0]
FED = ("define", "event", "profile", "list", "advance")
"""The inputs of one user; accounts have several users: `test_segmenter_accounts_feed`."""


@dataclass
class World:
    """The segmenter and the oracles with the same inputs."""

    restarts: bool
    segmenter: MemorySegmenter = field(default_factory=MemorySegmenter)
    oracles: dict[str, Oracle] = field(
        default_factory=lambda: {user: Oracle({}, WORLD.base_ms, user, WORLD.zone) for user in USERS}
    )
    versions: dict[str, tuple[str, int]] = field(default_factory=dict)
    now_ms: int = WORLD.base_ms

    def __post_init__(self) -> None:
        self.segmenter.clock(self.now_ms)

    def feed(self, given_step: Step, user: str) -> list[FeedEntry]:
        """Give one step to the segmenter and the oracles; return the changes that the oracles expect."""
        expected = self.advance(given_step.after_ms)
        step, happened = put(with_inputs(given_step), WORLD, self.now_ms)
        if happened is not None:
            self.now_ms = max(self.now_ms, happened.time_ms)
            context = json.dumps(happened.context)
            self.segmenter.track(user, happened.name, happened.time_ms, happened.properties, context=context)
            expected += entries(user, self.oracles[user].event(happened, self.now_ms))
        elif step.traits is not None:
            self.segmenter.identify(user, step.traits, self.now_ms)
            expected += entries(user, self.oracles[user].profile(dict(step.traits), self.now_ms))
        elif step.kind == "list":
            key, is_on = step.listed
            self.segmenter.listed(user, key, is_on=is_on)
            expected += entries(user, self.oracles[user].listed(key, is_on, self.now_ms))
        elif step.kind == "define":
            self.define(dict(step.definitions))
            for name, oracle in self.oracles.items():
                expected += entries(name, oracle.define(dict(step.definitions), self.now_ms))
        # A timer due at this very instant waits: more events of it may arrive.
        return expected + self.expected_until(self.now_ms - GRID_MS)

    def advance(self, by_ms: int) -> list[FeedEntry]:
        """Advance by a clock record, which ends the instant."""
        if not by_ms:
            return []
        self.now_ms += by_ms
        self.segmenter.clock(self.now_ms)
        return self.expected_until(self.now_ms)

    def expected_until(self, instant_ms: int) -> list[FeedEntry]:
        return [one for user, oracle in self.oracles.items() for one in entries(user, oracle.advance(instant_ms))]

    def define(self, definitions: dict[str, Any]) -> None:
        log = self.segmenter
        for key, where in definitions.items():
            before, version = self.versions.get(key, ("", 0))
            document = json.dumps(
                {"key": key, "name": key, "timezone": WORLD.zone, "where": where}
            )  # as text: for Python, True equals 1
            if before != document:
                self.versions[key] = (document, version + 1)
                log.record_definition(key, document, version=version + 1, action="REVISED" if version else "DEFINED")
        for key in [key for key in reversed(self.versions) if key not in definitions]:  # those that use others go first
            del self.versions[key]
            log.record_definition(key, "{}", action="ARCHIVED")
        log.task.settle()


def with_inputs(step: Step) -> Step:
    return replace(step, definitions=tuple((key, fed(where)) for key, where in step.definitions))


def fed(document: Any) -> Any:
    """Return the condition with an event condition in place of each account and bucket, which the oracle of one user lacks."""
    if isinstance(document, list):
        return [fed(part) for part in document]
    if not isinstance(document, dict):
        return document
    if document.keys() & {"account", "bucket"}:
        return {"event": "A", "within": "3s"}
    return {key: fed(value) for key, value in document.items()}


def entries(user: str, changes: list[tuple[str, int, str, int, str]]) -> list[FeedEntry]:
    return [FeedEntry(user, key, status, sequence, at, cause) for key, sequence, status, at, cause in changes]


def in_order(changes: list[FeedEntry]) -> list[FeedEntry]:
    """Sort by user and instant; the order within one evaluation and between users is undefined."""
    return sorted(changes, key=lambda change: (change.user, change.effective_at, change.segment, change.sequence))


@settings(max_examples=100, deadline=None)
@given(stories(), st.data(), st.booleans())
def test_the_feed_equals_the_oracles(story: list[Step], data: st.DataObject, restarts: bool) -> None:
    world = World(restarts)
    for step in (step for step in story if step.kind in FED):
        expected = world.feed(step, data.draw(st.sampled_from(USERS)))
        changes = world.segmenter.changes()
        assert in_order(changes) == in_order(expected), step
        for user in USERS:
            instants = [change.effective_at for change in changes if change.user == user]
            assert instants == sorted(instants)
        if world.restarts:
            world.segmenter.restart()
    assert world.segmenter.refused == []
    assert world.segmenter.task.refusals == []
