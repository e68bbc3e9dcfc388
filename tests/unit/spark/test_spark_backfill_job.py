"""The runs of the backfill: gone on with after a kill, paused, cancelled, one for what waits and none for what does not."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from threading import Event
from typing import Any

import pytest

from starling_common.kafka.topics import BACKFILL_STATES, BEHAVIOUR
from starling_common.outcome import Done
from starling_common.settings import Clock
from starling_rules.backfills import EVERYWHERE, Backfill, Part, to_json
from starling_rules.definitions import Definitions, fold
from starling_rules.ledger import CANCELLED, DONE, FAILED, PARTITION, PAUSED, REQUEST, RUN, RUNNING, Run, Share, applied, report
from starling_spark.jobs.backfill.job import BackfillDependencies, BackfillJob
from starling_spark.jobs.backfill.planning import Assignment
from starling_spark.jobs.backfill.positions import Cut
from starling_spark.lineage.datasets import Flow, kafka_topics
from starling_spark.lineage.runs import OFF, Lineage, State
from starling_spark.lineage.runs import Event as LineageEvent


@dataclass
class World:
    """The topics, in memory. `meanwhile` is called with each share that is done."""

    definitions_now: Definitions = field(default_factory=Definitions)
    runs_now: Mapping[str, Run] = field(default_factory=dict)
    folded: list[int] = field(default_factory=list)
    given_up: int = 0
    stands_at: int = 10
    meanwhile: Callable[[int], None] = lambda _number: None

    # What `BackfillTopics` gives.
    def refresh(self) -> None: ...

    def definitions(self) -> Definitions:
        return self.definitions_now

    def runs(self) -> Mapping[str, Run]:
        return self.runs_now

    # What `Reporter` does.
    def publish(self, run: Run, *shares: Share) -> None:
        self.write(report(run, RUN, run.state, 1))
        for share in shares:
            self.write(report(run, PARTITION, share.state, 1, share))

    def finish(self, run: Run, backfill: Backfill) -> None:
        self.take({"kind": "backfill", "workspace": EVERYWHERE, "key": run.name, "document": to_json(backfill)})
        self.publish(run)

    def write(self, record: Mapping[str, Any]) -> None:
        self.runs_now = applied(self.runs_now, record)

    def take(self, record: Mapping[str, Any]) -> None:
        outcome = fold(self.definitions_now, record)
        assert isinstance(outcome, Done)
        self.definitions_now = outcome.value

    def define(self, key: str, version: int = 1) -> None:
        document = {"key": key, "name": key, "where": {"event": key, "within": f"{version}d"}}
        fields = {"kind": "segment", "workspace": "acme", "key": key, "version": version, "correlation_id": "c"}
        self.take({**fields, "action": "DEFINED", "document": json.dumps(document), "awaits_backfill": True})

    def fold(self, assignment: Assignment) -> Share:
        number, total = assignment.share.number, assignment.share.records_total
        self.meanwhile(number)
        self.folded.append(number)
        part = Part(dict(assignment.share.inputs), 5, 0, 1, 1)
        return replace(assignment.share, state=DONE, records_done=total, part=part)

    def ask(self, state: str) -> None:
        (run,) = self.runs_now.values()
        self.write(report(run, REQUEST, state, 2))

    def give_up(self) -> None:
        self.given_up += 1

    def job(self, lineage: Lineage = OFF) -> BackfillJob:
        found = BackfillDependencies(self, self, self.cuts, self.fold, self.give_up, 1, Clock.EVENT, 1, 5, the_flow, lineage)  # type: ignore[arg-type]
        return BackfillJob(found)

    def cuts(self) -> list[Cut]:
        return [Cut(number, {BEHAVIOUR: self.stands_at}, {BEHAVIOUR: 0}, 5) for number in range(4)]

    def run(self) -> Run:
        """The only one."""
        (run,) = self.runs_now.values()
        return run


def the_flow() -> Flow:
    return Flow((), kafka_topics("kafka-0:9092", BACKFILL_STATES))


def killed_at(number: int, world: World) -> Callable[[int], None]:
    def meanwhile(at: int) -> None:
        if at == number:
            world.meanwhile = lambda _number: None
            raise RuntimeError("killed")

    return meanwhile


def test_what_waits_is_gathered_and_takes_effect() -> None:
    world = World()
    world.define("buyers")
    world.define("readers")
    world.job().run(Event())
    assert (world.run().state, world.run().percent, world.run().records_total) == (DONE, 100.0, 40)
    assert world.definitions_now.versions == {"acme/buyers": 1, "acme/readers": 1}
    assert sorted(world.definitions_now.backfills[0].parts) == [0, 1, 2, 3]
    world.job().run(Event())
    assert world.folded == [0, 1, 2, 3]


def test_nothing_waits_nothing_happens() -> None:
    world = World()
    world.job().run(Event())
    assert world.runs_now == {}


def test_after_a_kill_only_what_is_not_done_is_done() -> None:
    world = World()
    world.define("buyers")
    world.meanwhile = killed_at(2, world)
    with pytest.raises(RuntimeError):
        world.job().run(Event())
    assert (world.run().state, world.run().message, world.given_up) == (FAILED, "killed", 1)
    world.define("later")
    world.job().run(Event())
    first, second = sorted(world.runs_now.values(), key=lambda run: run.started_at)
    assert world.folded == [0, 1, 2, 3, 0, 1, 2, 3]
    assert (first.definitions, second.definitions) == ({"acme/buyers": 1}, {"acme/later": 1})
    assert world.definitions_now.versions == {"acme/buyers": 1, "acme/later": 1}


def test_a_pause_lasts_until_a_resumption() -> None:
    world = World()
    world.define("buyers")
    stopping = Event()

    def meanwhile(number: int) -> None:
        if number == 1:
            world.ask(PAUSED)
            world.meanwhile = lambda _number: stopping.set()  # whatever comes next came too early

    world.meanwhile = meanwhile
    real_publish = world.publish

    def publish(run: Run, *shares: Share) -> None:
        real_publish(run, *shares)
        if run.state == PAUSED:
            assert world.folded == [0, 1]
            world.meanwhile = lambda _number: None
            world.ask(RUNNING)

    world.publish = publish  # type: ignore[method-assign]
    world.job().run(stopping)
    assert not stopping.is_set()
    assert (world.run().state, world.folded) == (DONE, [0, 1, 2, 3])


def test_a_cancelled_run_waits_for_a_resumption() -> None:
    world = World()
    world.define("buyers")
    world.meanwhile = lambda _number: world.ask(CANCELLED)
    world.job().run(Event())
    assert (world.run().state, world.folded, world.definitions_now.versions) == (CANCELLED, [0], {})
    world.job().run(Event())
    assert world.folded == [0]
    world.meanwhile = lambda _number: None
    world.ask(RUNNING)
    world.job().run(Event())
    assert world.folded == [0, 0, 1, 2, 3]
    assert world.definitions_now.versions == {"acme/buyers": 1}


def test_a_run_without_waiting_segments_is_given_up() -> None:
    world = World()
    world.define("buyers")
    world.meanwhile = killed_at(1, world)
    with pytest.raises(RuntimeError):
        world.job().run(Event())
    world.define("buyers", version=2)
    world.job().run(Event())
    assert sorted((run.state, tuple(run.definitions.values())) for run in world.runs_now.values()) == [
        (CANCELLED, (1,)),
        (DONE, (2,)),
    ]
    assert world.definitions_now.versions == {"acme/buyers": 2}


def test_a_stop_leaves_it_to_the_next_start() -> None:
    world, stopping = World(), Event()
    world.define("buyers")
    world.meanwhile = lambda _number: stopping.set()
    world.job().run(stopping)
    assert world.run().state == RUNNING
    world.job().run(Event())
    assert world.run().state == DONE


def test_runs_emit_their_ends() -> None:
    events: list[LineageEvent] = []
    world, stopping, lineage = World(), Event(), Lineage(events.append)
    world.define("buyers")
    world.stands_at = 100
    world.meanwhile = killed_at(2, world)
    with pytest.raises(RuntimeError):
        world.job(lineage).run(stopping)
    world.meanwhile = lambda _number: stopping.set()
    world.job(lineage).run(stopping)
    world.meanwhile = lambda _number: None
    world.job(lineage).run(Event())
    ends = [(one.state, one.error, one.flow.outputs[0].rows) for one in events if one.state != State.START]
    assert ends == [
        (State.FAIL, "RuntimeError: killed", None),
        (State.ABORT, None, ends[1][2]),
        (State.COMPLETE, None, 400),
    ]
    assert {one.job.name for one in events} == {"backfill"}


def test_what_came_in_meanwhile_is_gathered_by_passes_that_get_shorter() -> None:
    world = World()
    world.define("buyers")
    world.stands_at = 100
    seen: list[tuple[str | None, int]] = []
    arriving = {100: 40, 140: 10, 150: 4}

    def meanwhile(number: int) -> None:
        if number == 3:
            world.stands_at += arriving.get(world.stands_at, 0)

    real_publish = world.publish

    def publish(run: Run, *shares: Share) -> None:
        real_publish(run, *shares)
        if len(shares) == 4:
            seen.append((run.base, run.records_total))

    world.meanwhile, world.publish = meanwhile, publish  # type: ignore[method-assign]
    world.job().run(Event())
    assert [(base is not None, total) for base, total in seen] == [(False, 400), (True, 160), (True, 40)]
    assert world.definitions_now.versions == {"acme/buyers": 1}
    (backfill,) = world.definitions_now.backfills
    assert backfill.parts[0].inputs == {BEHAVIOUR: 150}
