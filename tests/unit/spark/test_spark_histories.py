"""The history of a new trait: folded apart, packed, and written for the query step by step."""

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from starling_common.settings import Clock
from starling_segments import decode_state
from starling_spark.directories import LocalDirectory
from starling_spark.jobs.profiles.bootstrap import Bootstrap, BootstrapDependencies, State
from starling_spark.jobs.profiles.definitions.plans import compile_traits
from starling_spark.jobs.profiles.fold.bucket import Unfoldable
from starling_spark.jobs.profiles.fold.chunks import Seeds, UserHits, decode_seeds
from starling_spark.jobs.profiles.fold.histories import History, fold_history, packs
from starling_spark.jobs.profiles.query.generations import Generation, Generations
from starling_spark.jobs.profiles.query.past import PastEvents
from starling_spark.jobs.profiles.query.transform import Job, Topics
from tests.unit.spark.keeping import ORDERS, START_MS, Partition, defined, seeded, traits

SPENT = {"event": "Order Completed", "measure": {"sum": "revenue"}}
OLD, NEW = (defined("n", ORDERS),), (defined("n", ORDERS), defined("m", SPENT))


def hits(*payloads: Any) -> UserHits:
    return UserHits("c-ann", [(START_MS + at, START_MS + at, [(0, payload)]) for at, payload in enumerate(payloads)])


def test_an_event_that_makes_the_fold_raise_changes_nothing_and_is_named() -> None:
    plan = compile_traits(traits(defined("m", SPENT)))["w"]
    state, lost, now_ms = fold_history(plan.measures, "w/ann", [hits(1, "x", 2), hits(4)])
    assert state is not None
    value, _ = plan.readings[0].read(decode_state(state), START_MS + 9)  # type: ignore[union-attr]
    assert value == 7
    assert [(one.user, one.time_ms, one.correlation_id, one.code) for one in lost] == [("w/ann", START_MS + 1, "c-ann", "poison")]
    assert now_ms == START_MS + 2
    assert fold_history(plan.measures, "w/ann", [hits(None)]) == (None, [], START_MS)


def test_a_lost_event_of_a_history_becomes_a_dead_letter_and_a_broken_history_too() -> None:
    partition = Partition(*OLD)
    partition.batch([("ann", START_MS, "Order Completed", {"revenue": 1})])
    partition.begin_step(*NEW)
    plan = partition.plans["w"]
    (number,) = [number for number, leaf in enumerate(plan.measures.leaves) if leaf.id in plan.fresh_leaves()]
    run = UserHits("c-bob", [(START_MS, START_MS, [(number, payload)]) for payload in (1, "x")])
    lost = fold_history(plan.measures, "w/bob", [run]).lost
    chunks = [seeded({"w/ann": b"\x08broken"}), msgspec.structs.replace(seeded({}), seeds=Seeds({}, lost))]
    found = [one for one in partition.outputs(chunks) if isinstance(one, Unfoldable)]
    assert [(one.user, one.correlation_id, one.why.code) for one in found] == [
        ("w/ann", "profiles-visit", "poison"),
        ("w/bob", "c-bob", "poison"),
    ]


def test_packs_are_of_one_partition_and_bounded() -> None:
    many = [(0, f"w/u{number}", History(b"s", [], number)) for number in range(250)]
    others = [(1, "w/v", History(b"s", [], 7)), (1, "w/x", History(None, [], 3))]
    found = [(partition, decode_seeds(pack)) for partition, pack in packs([*many, *others])]
    assert [(partition, len(seeds.states), seeds.now_ms) for partition, seeds in found] == [
        (0, 100, 99),
        (0, 100, 199),
        (0, 50, 249),
        (1, 1, 7),
    ]
    large = [(0, f"w/u{number}", History(bytes(200_000), [], 0)) for number in range(4)]
    assert [len(decode_seeds(pack).states) for _, pack in packs(large)] == [2, 2]
    assert list(packs([(0, "w/u", History(None, [], 0))])) == []


class Reading:
    """The batch job in place of Spark: writes `files` and counts its runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, files: int = 2, failure: Exception | None = None) -> None:
        self.runs, self.spans = 0, dict[Any, Any]()
        self._files, self._failure = files, failure
        monkeypatch.setattr(Bootstrap, "_write_seeds", lambda step, past, _table: self.run(step._generation, past.spans))

    def run(self, generation: Generation, spans: Mapping[Any, Any]) -> None:
        self.runs += 1
        self.spans = dict(spans)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        for number in range(self._files):
            generation.visit_files.write(f"part-{self.runs}-{number}", "seeds 0 AA==")
        generation.visit_files.write("_SUCCESS", "")


def begun(tmp_path: Path, definitions: Any = NEW, users: int = 0) -> Generation:
    generations = Generations(LocalDirectory(tmp_path))
    made = generations.open("q", "layout", OLD)
    (made.directory / "commits").make()
    (made.directory / "offsets").make()
    (made.directory / "offsets").write("3", 'v1\n{}\n{"events":{"0":40}}\n{"logOffset":4}')
    (made.directory / "commits").write("3", "v1")
    return generations.change(made, definitions, users)


def step_of(generation: Generation, passed: list[str] | None = None, users: int = 0, waiting: int = 0) -> Bootstrap:
    job = Job(Topics("events", "clock", "values", "letters"), SimpleNamespace(), Clock.EVENT)  # type: ignore[arg-type]
    job = Job(job.topics, job.wire, job.clock, generation.entries, step=generation.step.number, is_complete=False)
    spans = {("events", 0): (7, 90), ("events", 1): (0, 5)}
    points = [] if passed is None else passed
    past = PastEvents("events", lambda: spans, nullcontext)
    needed = BootstrapDependencies(lambda: None, past, lambda: users, lambda: waiting, points.append, "", 1, 1_000)  # type: ignore[arg-type, return-value]
    return Bootstrap(generation, job, needed)


def advanced(step: Bootstrap, files_read: int, *, has_read_topics: bool = False) -> State:
    """Advance until the state no longer changes; the thread of the reading ends meanwhile."""
    state = step.advance(files_read, has_read_topics)
    for _ in range(20):
        if step._reading is not None:
            step._reading.join(10)
        state = step.advance(files_read, has_read_topics)
    return state


def test_a_step_reads_the_history_before_the_cut_and_then_visits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, generation, passed = Reading(monkeypatch), begun(tmp_path), list[str]()
    step = step_of(generation, passed)
    assert advanced(step, 5) is State.SEEDING
    assert (reading.runs, reading.spans) == (1, {("events", 0): (7, 40)})
    assert step.progress == (26, 33)
    assert advanced(step, 6) is State.SEEDING
    assert step.progress == (30, 33)
    assert advanced(step, 7) is State.VISITING
    assert generation.visit_files.read("step-000002-000000") == "visit 1\n"
    assert advanced(step, 8) is State.DONE
    assert passed == ["bootstrap_read", "bootstrap_seeded", "bootstrap_visit"]


def test_a_step_that_was_killed_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, generation = Reading(monkeypatch), begun(tmp_path)
    generation.visit_files.write("part-0", "seeds 0 AA==")  # of a reading that was killed amid its commit
    assert advanced(step_of(generation), 7) is State.SEEDING
    assert advanced(step_of(generation, waiting=9_000), 8) is State.VISITING
    assert reading.runs == 1
    assert len([name for name in generation.visit_files.names() if name.startswith("step-")]) == 3
    generation.visit_files.remove("step-000002-000002")
    again = step_of(generation)
    assert advanced(again, 10) is State.VISITING
    assert advanced(again, 11) is State.DONE


def test_a_step_without_new_leaves_reads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch)
    step = step_of(begun(tmp_path, (defined("n", ORDERS), defined("twin", ORDERS))))
    assert advanced(step, 5) is State.VISITING
    assert reading.runs == 0


def test_a_step_that_ends_a_trait_visits_all_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Reading(monkeypatch)
    generation = begun(tmp_path, (), users=9_000)
    assert advanced(step_of(generation), 5) is State.VISITING
    assert len([name for name in generation.visit_files.names() if name.startswith("step-")]) == 3


def test_a_reading_that_fails_is_done_again_after_a_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, step = Reading(monkeypatch, failure=RuntimeError("the lake is gone")), step_of(begun(tmp_path))
    now = [100.0]
    monkeypatch.setattr("starling_spark.jobs.profiles.bootstrap.time.monotonic", lambda: now[0])
    assert advanced(step, 5) is State.READING
    assert (step.problem, reading.runs) == ("the history cannot be read: the lake is gone", 1)
    now[0] += 2.1
    assert advanced(step, 5) is State.SEEDING
    assert (step.problem, reading.runs) == (None, 2)


def test_a_query_begins_with_a_step_that_reads_what_is_before_its_first_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It visits the users who wait when it has read the topics."""
    reading = Reading(monkeypatch)
    generation = Generations(LocalDirectory(tmp_path)).open("q", "layout", NEW)
    step = step_of(generation, waiting=9_000)
    assert advanced(step, 0) is State.READING
    assert reading.runs == 0
    (generation.directory / "sources" / "0").make()
    (generation.directory / "sources" / "0").write("0", '\0v1\n{"events":{"0":9}}')
    assert advanced(step, 0) is State.SEEDING
    assert (reading.runs, reading.spans) == (1, {("events", 0): (7, 9)})
    assert advanced(step, 2) is State.SEEDING
    assert advanced(step, 2, has_read_topics=True) is State.VISITING
    assert len([name for name in generation.visit_files.names() if name.startswith("step-")]) == 3
    generation.visit_files.remove("step-000001-000002")
    assert advanced(step_of(generation, waiting=1), 5, has_read_topics=True) is State.DONE
    assert len([name for name in generation.visit_files.names() if name.startswith("step-")]) == 3
