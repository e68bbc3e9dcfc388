"""Edge: runs of the backfill, sequentially, until no segment waits for one."""

import itertools
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from threading import Event
from typing import Final

from starling_common.kafka.topics import BACKFILL_STATES
from starling_common.settings import Clock
from starling_common.telemetry.logs import log
from starling_common.time.instants import wall_clock_micros
from starling_rules.ledger import CANCELLED, DONE, FAILED, PAUSED, PLANNED, RUNNING, Run, Share, unfinished
from starling_spark.jobs.backfill.planning import Assignment, Wanted, assignments, tail, wanted
from starling_spark.jobs.backfill.positions import Cut
from starling_spark.jobs.backfill.records import Reporter
from starling_spark.jobs.backfill.topics import BackfillTopics
from starling_spark.lineage.datasets import Flow
from starling_spark.lineage.runs import OFF, Describe, JobName, Lineage

_POLL_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class BackfillDependencies:
    """The dependencies of the job. `fold`: folds an assignment in a Spark worker; `at_once`: concurrent assignments;
    `cuts`: the offsets of the segmenter; `tail_records`: as in the settings; `flow`: what a run reads and writes.
    """

    known: BackfillTopics
    reporter: Reporter
    cuts: Callable[[], list[Cut]]
    fold: Callable[[Assignment], Share]
    give_up: Callable[[], None]
    at_once: int
    clock: Clock
    slices: int
    tail_records: int
    flow: Describe = Flow
    lineage: Lineage = OFF


class BackfillJob:
    """The backfill job; one at a time for an installation."""

    def __init__(self, dependencies: BackfillDependencies) -> None:
        self._dependencies = dependencies

    def run(self, stopping: Event) -> None:
        """Run until no segment waits, or `stopping`; an interrupted run is continued.

        Raises: KafkaException, BrokerUnavailable, Py4JJavaError when a partition fails.
        """
        known = self._dependencies.known
        while not stopping.is_set():
            known.refresh()
            definitions = known.definitions()
            waiting, run = wanted(definitions, self._dependencies.clock), unfinished(known.runs().values())
            if run is not None and not _is_wanted(run, waiting):
                self._end(run, CANCELLED)
            elif run is not None:
                self._observed(run, stopping)
            elif waiting is not None and not _was_cancelled(known.runs().values(), waiting):
                self._observed(self._planned(waiting, self._dependencies.cuts() if waiting.leaves else []), stopping)
            else:
                return

    def _observed(self, run: Run, stopping: Event) -> None:
        """Carry out a run, and emit its events."""
        dependencies = self._dependencies
        with dependencies.lineage.run(JobName("backfill"), dependencies.flow, stopping.is_set) as lineage:
            lineage.computes(run.started_at // 1000)
            ended = self._carry_out(run, stopping)
            lineage.wrote({BACKFILL_STATES: ended.records_done})
            if ended.state == CANCELLED or stopping.is_set():
                lineage.abort()

    def _planned(self, waiting: Wanted, cuts: Iterable[Cut], base: Run | None = None) -> Run:
        """Return a new run up to the segmenter's current offsets, from the end of `base` if there is one."""
        now = wall_clock_micros()
        before = {} if base is None else {number: share.inputs for number, share in base.shares.items()}
        shares = []
        for cut in cuts:
            records = cut.records(waiting.topics, before.get(cut.partition))
            shares.append(Share(cut.partition, PLANNED, dict(cut.inputs), cut.stream_time_ms, 0, records))
        # A run without records ends within the millisecond in which the next one starts.
        known, at_ms = self._dependencies.known.runs(), now // 1000
        name = next(name for later in itertools.count() if (name := f"backfill-{at_ms + later}") not in known)
        run = Run(name, RUNNING, now, now, waiting.versions, waiting.leaves)
        run = replace(run, base=None if base is None else base.name)
        run = replace(run, shares={share.number: share for share in shares})
        self._dependencies.reporter.publish(run, *shares)
        log(__name__).info("backfill_begun", run=run.name, definitions=dict(run.definitions), records=run.records_total)
        return run

    def _carry_out(self, run: Run, stopping: Event) -> Run:
        """Fold the unfinished partitions, and return the run as it was left."""
        dependencies = self._dependencies
        base = dependencies.known.runs().get(run.base or "")
        left = assignments(run, dependencies.known.definitions(), dependencies.clock, dependencies.slices, base)
        with ThreadPoolExecutor(dependencies.at_once, thread_name_prefix="partition") as pool:
            under_way: set[Future[Share]] = set()
            try:
                while left or under_way:
                    run = self._with_request(run)
                    if run.state == CANCELLED or stopping.is_set():
                        break
                    while left and run.state == RUNNING and len(under_way) < dependencies.at_once:
                        under_way.add(pool.submit(dependencies.fold, left.pop(0)))
                    ended, under_way = wait(under_way, _POLL_SECONDS, FIRST_COMPLETED) if under_way else _rest(stopping)
                    for future in ended:
                        run = self._done(run, future.result())
            except BaseException as cause:
                dependencies.give_up()
                dependencies.reporter.publish(replace(run, state=FAILED, message=str(cause)[:2000]))
                raise
            if under_way:
                dependencies.give_up()
        if run.state == CANCELLED:
            self._end(run, CANCELLED)
        elif not stopping.is_set():
            self._finish_or_follow(run, base)
        return run

    def _with_request(self, run: Run) -> Run:
        """Return the run in the state that an operator requested."""
        requested = self._dependencies.known.runs()[run.name].requested if run.name in self._dependencies.known.runs() else RUNNING
        state = {PAUSED: PAUSED, CANCELLED: CANCELLED}.get(requested, RUNNING)
        if state == run.state:
            return run
        run = replace(run, state=state, message=None)
        if state != CANCELLED:
            self._dependencies.reporter.publish(run)
        log(__name__).info("backfill_state", run=run.name, state=state)
        return run

    def _done(self, run: Run, share: Share) -> Run:
        run = replace(run, shares={**run.shares, share.number: share})
        self._dependencies.reporter.publish(run, share)
        log(__name__).info(
            "partition_backfilled", run=run.name, partition=share.number, records=share.records_done, refused=share.refused
        )
        return run

    def _finish_or_follow(self, run: Run, base: Run | None) -> None:
        """Start another pass if many records were added since the cut, and fewer than half as many as before; otherwise finish."""
        dependencies = self._dependencies
        waiting = wanted(dependencies.known.definitions(), dependencies.clock)
        cuts = dependencies.cuts() if run.shares else []
        if waiting is not None and _is_same(waiting, run):
            left, last = tail(run, cuts, waiting.topics), max((share.records_total for share in run.shares.values()), default=0)
            if left > dependencies.tail_records and (base is None or left < last / 2):
                self._end(run, DONE)
                self._planned(waiting, cuts, run)
                return
        self._finish(run)

    def _finish(self, run: Run) -> None:
        run = replace(run, state=DONE, message=None)
        self._dependencies.reporter.finish(run, run.outcome())
        seconds = round((wall_clock_micros() - run.started_at) / 1e6, 1)
        log(__name__).info("backfill_done", run=run.name, records=run.records_done, refused=run.refused, seconds=seconds)

    def _end(self, run: Run, state: str) -> None:
        self._dependencies.reporter.publish(replace(run, state=state, message=None))
        log(__name__).info("backfill_state", run=run.name, state=state)


def _rest(stopping: Event) -> tuple[set[Future[Share]], set[Future[Share]]]:
    stopping.wait(_POLL_SECONDS)
    return set(), set()


def _is_same(waiting: Wanted, run: Run) -> bool:
    """Return whether the run is for exactly the waiting segments."""
    return dict(waiting.versions) == dict(run.definitions) and dict(waiting.leaves) == dict(run.leaves)


def _is_wanted(run: Run, waiting: Wanted | None) -> bool:
    """Return whether any segment of the run still waits, in that version."""
    return waiting is not None and any(waiting.versions.get(segment) == version for segment, version in run.definitions.items())


def _was_cancelled(runs: Iterable[Run], waiting: Wanted) -> bool:
    """Return whether the newest run was for exactly these segments and was cancelled; a restart does not repeat it."""
    newest = max(runs, key=lambda run: run.started_at, default=None)
    return newest is not None and newest.requested == CANCELLED and dict(newest.definitions) == dict(waiting.versions)
