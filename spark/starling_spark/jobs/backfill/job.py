"""Edge: runs of the backfill, one after the other, until no segment waits for one."""

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from threading import Event
from typing import Final

from starling_common.instants import wall_clock_micros
from starling_common.logs import log
from starling_common.settings import Clock
from starling_rules.following import Known
from starling_rules.ledger import CANCELLED, DONE, FAILED, PAUSED, PLANNED, RUNNING, Run, Share, unfinished
from starling_spark.jobs.backfill.planning import Assignment, Wanted, assignments, tail, wanted
from starling_spark.jobs.backfill.positions import Cut
from starling_spark.jobs.backfill.records import Reporter

_LOOK_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Means:
    """What a job works with. `fold`: one assignment in a worker of Spark; `at_once`: how many; `cuts`: where the segmenter is.

    `tail_records`: as in the settings.
    """

    known: Known
    reporter: Reporter
    cuts: Callable[[], list[Cut]]
    fold: Callable[[Assignment], Share]
    give_up: Callable[[], None]
    at_once: int
    clock: Clock
    slices: int
    tail_records: int


class BackfillJob:
    """One at a time for an installation."""

    def __init__(self, means: Means) -> None:
        self._means = means

    def run(self, stopping: Event) -> None:
        """Until nothing waits, or `stopping`; a run that was broken off is gone on with.

        Raises: KafkaException, BrokerUnavailable, Py4JJavaError when a partition cannot be done.
        """
        known = self._means.known
        while not stopping.is_set():
            known.refresh()
            definitions = known.definitions()
            waiting, run = wanted(definitions, self._means.clock), unfinished(known.runs().values())
            if run is not None and not _is_wanted(run, waiting):
                self._end(run, CANCELLED)
            elif run is not None:
                self._carry_out(run, stopping)
            elif waiting is not None and not _was_cancelled(known.runs().values(), waiting):
                self._carry_out(self._planned(waiting, self._means.cuts() if waiting.leaves else []), stopping)
            else:
                return

    def _planned(self, waiting: Wanted, cuts: Iterable[Cut], base: Run | None = None) -> Run:
        """A new run, up to where the segmenter stands now; from where `base` ended, if there is one."""
        now = wall_clock_micros()
        before = {} if base is None else {number: share.inputs for number, share in base.shares.items()}
        shares = []
        for cut in cuts:
            records = cut.records(waiting.topics, before.get(cut.partition))
            shares.append(Share(cut.partition, PLANNED, dict(cut.inputs), cut.stream_time_ms, 0, records))
        run = Run(f"backfill-{now // 1000}", RUNNING, now, now, waiting.versions, waiting.leaves)
        run = replace(run, base=None if base is None else base.name)
        run = replace(run, shares={share.number: share for share in shares})
        self._means.reporter.tell(run, *shares)
        log(__name__).info("backfill_begun", run=run.name, definitions=dict(run.definitions), records=run.records_total)
        return run

    def _carry_out(self, run: Run, stopping: Event) -> None:
        means = self._means
        base = means.known.runs().get(run.base or "")
        left = assignments(run, means.known.definitions(), means.clock, means.slices, base)
        with ThreadPoolExecutor(means.at_once, thread_name_prefix="partition") as pool:
            under_way: set[Future[Share]] = set()
            try:
                while left or under_way:
                    run = self._heeded(run)
                    if run.state == CANCELLED or stopping.is_set():
                        break
                    while left and run.state == RUNNING and len(under_way) < means.at_once:
                        under_way.add(pool.submit(means.fold, left.pop(0)))
                    ended, under_way = wait(under_way, _LOOK_SECONDS, FIRST_COMPLETED) if under_way else _rest(stopping)
                    for future in ended:
                        run = self._done(run, future.result())
            except BaseException as cause:
                means.give_up()
                means.reporter.tell(replace(run, state=FAILED, message=str(cause)[:2000]))
                raise
            if under_way:
                means.give_up()
        if run.state == CANCELLED:
            self._end(run, CANCELLED)
        elif not stopping.is_set():
            self._finish_or_follow(run, base)

    def _heeded(self, run: Run) -> Run:
        """What an operator asks for, done."""
        asked = self._means.known.runs()[run.name].asked if run.name in self._means.known.runs() else RUNNING
        state = {PAUSED: PAUSED, CANCELLED: CANCELLED}.get(asked, RUNNING)
        if state == run.state:
            return run
        run = replace(run, state=state, message=None)
        if state != CANCELLED:
            self._means.reporter.tell(run)
        log(__name__).info("backfill_state", run=run.name, state=state)
        return run

    def _done(self, run: Run, share: Share) -> Run:
        run = replace(run, shares={**run.shares, share.number: share})
        self._means.reporter.tell(run, share)
        log(__name__).info("partition_backfilled", run=run.name, partition=share.number, records=share.records_done)
        return run

    def _finish_or_follow(self, run: Run, base: Run | None) -> None:
        """Another pass, where much came in meanwhile, and the last one did not find as much already."""
        means = self._means
        waiting = wanted(means.known.definitions(), means.clock)
        cuts = means.cuts() if run.shares else []
        if waiting is not None and _is_same(waiting, run):
            left, last = tail(run, cuts, waiting.topics), max((share.records_total for share in run.shares.values()), default=0)
            if left > means.tail_records and (base is None or left < last / 2):
                self._end(run, DONE)
                self._planned(waiting, cuts, run)
                return
        self._finish(run)

    def _finish(self, run: Run) -> None:
        run = replace(run, state=DONE, message=None)
        self._means.reporter.finish(run, run.outcome())
        seconds = round((wall_clock_micros() - run.started_at) / 1e6, 1)
        log(__name__).info("backfill_done", run=run.name, records=run.records_done, seconds=seconds)

    def _end(self, run: Run, state: str) -> None:
        self._means.reporter.tell(replace(run, state=state, message=None))
        log(__name__).info("backfill_state", run=run.name, state=state)


def _rest(stopping: Event) -> tuple[set[Future[Share]], set[Future[Share]]]:
    stopping.wait(_LOOK_SECONDS)
    return set(), set()


def _is_same(waiting: Wanted, run: Run) -> bool:
    """Whether the run is for all that waits, and for nothing else."""
    return dict(waiting.versions) == dict(run.definitions) and dict(waiting.leaves) == dict(run.leaves)


def _is_wanted(run: Run, waiting: Wanted | None) -> bool:
    """Whether any of its segments waits still, in that version."""
    return waiting is not None and any(waiting.versions.get(place) == version for place, version in run.definitions.items())


def _was_cancelled(runs: Iterable[Run], waiting: Wanted) -> bool:
    """Whether the newest run was for just these, and somebody did not want it: then it takes more than a start of the job."""
    newest = max(runs, key=lambda run: run.started_at, default=None)
    return newest is not None and newest.asked == CANCELLED and dict(newest.definitions) == dict(waiting.versions)
