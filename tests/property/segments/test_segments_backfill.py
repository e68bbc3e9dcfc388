"""The segmenter's feed against the oracle, in stories whose definitions wait for a backfill beside the traffic.

Everything runs in one process: the segmenter on a task in memory, the backfill as in a task of the job, without a broker.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from starling_common.kafka.topics import BACKFILL_STATES
from starling_common.settings import Clock
from starling_rules.backfills import Backfill, Part
from starling_rules.history import PAST
from starling_rules.ledger import RUNNING, Run, Share
from starling_segments import UserState, decode_state, encode_state
from starling_spark.jobs.backfill.folding import gathered
from starling_spark.jobs.backfill.planning import assignments, wanted
from starling_stream.model.processor import Inbound
from tests.property.segments.folded import CASES, ask, in_order, put
from tests.property.segments.oracle import ExpectedChange, MeasuredEvent, Oracle
from tests.property.segments.stories import WORLDS, Step, World, stories
from tests.unit.segmenter.segmenting import NOW_MICROS, MemorySegmenter

Definitions = tuple[tuple[str, Any], ...]
Gathered = tuple[Backfill, dict[bytes, UserState]]


@dataclass
class Lived:
    """One user of a segmenter. `waiting`: definitions that are not in force yet; None: none waits."""

    clock: Clock
    zone: str
    now: int
    segmenter: MemorySegmenter = field(init=False)
    versions: dict[str, tuple[Any, int]] = field(default_factory=dict)
    paused: frozenset[str] = frozenset()
    waiting: Definitions | None = None
    records: int = 0

    def __post_init__(self) -> None:
        self.segmenter = MemorySegmenter(self.clock)
        self.pass_time()

    def pass_time(self) -> None:
        """Fire timers up to and at `now`."""
        self.records += 1
        self.segmenter.clock(self.now, received_at=self.now * 1000 + self.records)

    def take(self, step: Step, event: MeasuredEvent | None) -> None:
        """Apply an input at stream time `now`. Receipts are strictly ascending."""
        self.records += 1
        received = {"received_at": self.now * 1000 + self.records}
        if step.kind == "profile":
            self.segmenter.identify("u", dict(step.traits or {}), self.now, **received)
        elif step.kind == "list":
            key, is_on = step.listed
            self.segmenter.listed("u", key, is_on=is_on, **received)
            self.pass_time()  # a repetition is skipped, and timers due at this instant wait for the other records of it
        elif step.kind == "advance":
            self.pass_time()
        else:
            assert event is not None
            context = json.dumps(event.context)
            self.segmenter.track("u", event.name, event.time_ms, event.properties, context=context, **received)

    def define(self, definitions: Definitions, *, awaits_backfill: bool) -> None:
        """Define the new and changed segments; removed ones stay in force until these are."""
        for key, where in definitions:
            before, version = self.versions.get(key, (None, 0))
            if json.dumps(before) == json.dumps(where):  # Python holds 1 and true for equal
                continue
            self.versions[key] = where, version + 1
            action = "PAUSED" if key in self.paused else "REVISED"  # paused segments stay paused
            self._record(key, action, awaits_backfill=awaits_backfill)
        self.waiting = definitions

    def hold(self, held: frozenset[str]) -> None:
        """Pause these segments and resume all others."""
        for key in sorted(held ^ self.paused):
            self._record(key, "PAUSED" if key in held else "RESUMED")
        self.paused = held

    def _record(self, key: str, action: str, *, awaits_backfill: bool = False) -> None:
        where, version = self.versions[key]
        document = json.dumps({"key": key, "name": key, "timezone": self.zone, "where": where})
        self.segmenter.record_definition(key, document, version=version, action=action, awaits_backfill=awaits_backfill)

    def archive(self) -> None:
        """Archive the segments that did not wait, the later ones first, because they may use the others."""
        kept = dict(self.waiting or ())
        self.paused &= kept.keys()
        for key in [key for key in reversed(self.versions) if key not in kept]:
            self.segmenter.record_definition(key, "{}", version=self.versions.pop(key)[1], action="ARCHIVED")

    def gather(self, before: Gathered | None) -> Gathered | None:
        """Run the backfill as a task of the job does, through bytes; None if nothing waits. `before`: a pass to continue from."""
        task, waiting = self.segmenter.task, wanted(self.segmenter.log.current(), self.clock)
        if waiting is None:
            return None
        inputs = {topic: offset for topic, offset in task.positions().items() if topic in PAST}
        share = Share(0, "planned", inputs, task.stream_time_ms, 0, 0)
        run = Run("run", RUNNING, NOW_MICROS, NOW_MICROS, waiting.versions, waiting.leaves, {0: share})
        if not waiting.leaves:  # all history that it needs is stored already
            return replace(run, shares={}).outcome(), {}
        (assignment,) = assignments(run, self.segmenter.log.current(), self.clock, 1)
        assignment = replace(assignment, base=None if before is None else before[0].parts[0])
        past, stream_time_ms = gathered(assignment, self._read, None if before is None else before[1])
        past = {key: decode_state(encode_state(state)) for key, state in past.items()}
        first = task.positions().get(BACKFILL_STATES, 0)
        part = Part(inputs, stream_time_ms, first, first + len(past), len(past))
        return replace(run, shares={0: replace(share, part=part)}).outcome(), past

    def _read(self, topic: str, partition: int, first: int, until: int) -> Iterator[Inbound]:
        processed = self.segmenter.task._processed
        return (one for one in processed if (one.topic, one.partition) == (topic, partition) and first <= one.offset < until)

    def move(self, step: Step, event: MeasuredEvent | None) -> None:
        """Return the stream time at the step. Under the event clock, only events move it, to their own time."""
        if self.clock is Clock.WALL or step.kind not in ("event", "list"):
            self.now += step.after_ms
        elif event is not None:
            self.now = max(self.now, event.time_ms)

    def changes(self) -> list[ExpectedChange]:
        return [(one.segment, one.sequence, one.status, one.effective_at, one.cause) for one in self.segmenter.changes()]


@dataclass
class Comparison:
    """A story on both sides. `passes`: of the backfill; `restarts`: whether another worker continues after it."""

    lived: Lived
    oracle: Oracle
    passes: int
    restarts: bool
    steps_ahead: int = 0
    found: Gathered | None = None

    def define(self, definitions: Definitions, steps_ahead: int) -> None:
        """The first definitions take effect at once, the others some steps later."""
        self.release()
        is_first = not self.lived.versions
        self.lived.define(definitions, awaits_backfill=not is_first)
        self.steps_ahead = steps_ahead
        if is_first:
            self._in_force()
        else:
            self.found = self.lived.gather(None)
            self.same([])

    def hold(self, held: frozenset[str]) -> None:
        """Pause the versions in force at once; waiting ones are paused when they take effect."""
        self.lived.hold(held)
        self.lived.segmenter.task.settle()
        self.same(self.oracle.hold(held, self.lived.now))

    def same(self, wanted_changes: list[ExpectedChange]) -> None:
        assert in_order(self.lived.changes()) == in_order(wanted_changes)

    def went_on(self) -> None:
        """Count a step during the backfill."""
        if self.lived.waiting is None:
            return
        self.steps_ahead -= 1
        if self.steps_ahead == 2 and self.passes == 2 and self.found is not None:
            self.found = self.lived.gather(self.found)
        if self.steps_ahead <= 0:
            self.release()

    def release(self) -> None:
        """Let the waiting definitions take effect, and archive what they replace."""
        if self.lived.waiting is None:
            return
        if self.restarts:
            self.lived.segmenter.restart()
        self.lived.archive()
        if self.found is not None:
            self.lived.segmenter.backfilled(*self.found)
            assert self.lived.segmenter.log.current().awaited() == {}
        self._in_force()

    def _in_force(self) -> None:
        definitions = self.lived.waiting or ()
        self.lived.waiting = self.found = None
        self.lived.segmenter.task.settle()
        self.same(self.oracle.define(dict(definitions), self.lived.now))


def run_story(story: list[Step], world: World, comparison: Comparison, ahead: list[int]) -> None:
    lived = comparison.lived
    for number, planned in enumerate(story):
        step, event = put(planned, world, lived.now + planned.after_ms)
        lived.move(step, event)
        if step.kind == "define":
            lived.pass_time()
            comparison.same(comparison.oracle.advance(lived.now))
            comparison.define(step.definitions, ahead[number % len(ahead)])
        elif step.kind == "hold":
            lived.pass_time()
            comparison.same(comparison.oracle.advance(lived.now))
            comparison.hold(step.held)
        else:
            lived.take(step, event)
            comparison.same(ask(comparison.oracle, step, event, lived.now))
            comparison.went_on()
    assert lived.segmenter.refused == []


def lifted(story: list[Step]) -> list[Step]:
    """Return conditions without account conditions: no user has an account here."""
    return [step for step in story if step.kind != "account"]


@settings(max_examples=CASES // 2, deadline=None)
@given(
    stories().map(lifted),
    st.sampled_from(WORLDS),
    st.sampled_from(Clock),
    st.tuples(st.integers(1, 2), st.booleans()),
    st.lists(st.integers(0, 6), min_size=1, max_size=3),
)
def test_what_a_backfill_gathered_is_what_the_oracle_sees(
    story: list[Step], world: World, clock: Clock, how: tuple[int, bool], ahead: list[int]
) -> None:
    """`ahead`: number of steps before each definition takes effect. A story takes as long as two of the others."""
    lived = Lived(clock, world.zone, world.base_ms)
    run_story(story, world, Comparison(lived, Oracle({}, now=world.base_ms, zone=world.zone), *how), ahead)
