"""Pure core: the segments of a run, and the assignment of each task."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from starling_common.outcome import Done
from starling_common.settings import Clock
from starling_common.wire import Record
from starling_rules.backfills import Part
from starling_rules.definitions import Definitions, fold
from starling_rules.history import PAST, fresh_leaves, past_topics
from starling_rules.ledger import Run, Share
from starling_rules.rules import Rules, compile_rules
from starling_spark.jobs.backfill.positions import Cut


@dataclass(frozen=True, slots=True)
class Wanted:
    """The waiting segments. `versions`: `workspace/key` -> version; `leaves`: the leaves without history, by workspace;
    `topics`: the topics to read.
    """

    versions: Mapping[str, int]
    leaves: Mapping[str, list[str]]
    topics: tuple[str, ...]


class Stretch(NamedTuple):
    """The records of one partition from offset `first` to before `end`."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """One task: a partition of a run, sent to a worker. The worker compiles the plan from `definitions`, the records with the new
    segments in force, of the workspaces that have some. `topics`: the topics to read. `base`: the states of the previous run.
    `from_lake`: topic -> the offsets that the lake provides; `starts`: topic -> the offset at which the topic follows the lake.
    `fragile`: the users at whom an earlier fold of it raised.
    """

    run: Run
    share: Share
    definitions: tuple[Record, ...]
    clock: Clock
    topics: tuple[str, ...]
    slices: int
    base: Part | None = None
    from_lake: Mapping[str, "Stretch"] = field(default_factory=dict)
    starts: Mapping[str, int] = field(default_factory=dict)
    fragile: frozenset[bytes] = frozenset()

    @property
    def in_order(self) -> bool:
        """Return whether the order of all records matters, so that profiles, lists and the clock are read too."""
        return self.topics == PAST

    def rules(self) -> Mapping[bytes, Rules]:
        """Return the compiled rules by workspace."""
        return compiled_from(self.definitions)


def wanted(definitions: Definitions, clock: Clock) -> Wanted | None:
    """Return the segments that wait for a backfill; None when there are none. `clock`: the source of stream time."""
    versions = definitions.awaited()
    if not versions:
        return None
    after = compile_rules(definitions.released(versions), {})
    fresh = fresh_leaves(compile_rules(definitions, {}), after)
    leaves = {workspace.decode(): sorted(found) for workspace, found in fresh.items()}
    return Wanted(versions, leaves, past_topics(fresh, after, clock) if leaves else ())


def assignments(run: Run, definitions: Definitions, clock: Clock, slices: int, base: Run | None = None) -> list[Assignment]:
    """Return the assignments of the unfinished partitions. `base`: the run to continue from."""
    after = definitions.released(run.definitions)
    records = tuple(record for workspace in run.leaves for record in after.records(workspace))
    topics = topics_for(run, compiled_from(records), clock)
    parts = {} if base is None else {number: share.part for number, share in base.shares.items()}
    left = [share for _, share in sorted(run.shares.items()) if share.part is None]
    return [Assignment(run, share, records, clock, topics, slices, parts.get(share.number)) for share in left]


def with_lake(assignment: Assignment, ends: Mapping[str, int], left: Mapping[str, int], *, takes_all: bool) -> Assignment:
    """Return the assignment with the offsets to read from the lake: those that the topics lack, or (`takes_all`) all of the lake.

    `ends`: topic -> the first offset of the partition that the lake lacks; `left`: the first one that the topic still has.
    """
    share, base = assignment.share, {} if assignment.base is None else assignment.base.inputs
    from_lake, starts = {}, {}
    for topic in [topic for topic in assignment.topics if topic in ends]:
        first, cut = base.get(topic, 0), share.inputs.get(topic, 0)
        end = min(cut, ends[topic]) if takes_all else min(cut, ends[topic], left[topic])
        if end > first:
            from_lake[topic] = Stretch(first, end)
        starts[topic] = max(first, end, min(left[topic], cut))
    return replace(assignment, from_lake=from_lake, starts=starts)


def lost(assignment: Assignment) -> dict[str, Stretch]:
    """Return by topic the offsets of the assignment that neither the lake nor the topic has."""
    base = {} if assignment.base is None else assignment.base.inputs
    known = {
        topic: max(base.get(topic, 0), assignment.from_lake[topic].end if topic in assignment.from_lake else 0)
        for topic in assignment.starts
    }
    return {topic: Stretch(known[topic], start) for topic, start in assignment.starts.items() if start > known[topic]}


def tail(run: Run, cuts: Iterable[Cut], topics: Iterable[str]) -> int:
    """Return the number of records since the run's cut, in the partition with the most."""
    names = list(topics)
    known = [(run.shares[cut.partition].inputs, cut.inputs) for cut in cuts if cut.partition in run.shares]
    return max((_since(before, now, names) for before, now in known), default=0)


def _since(before: Mapping[str, int], now: Mapping[str, int], topics: Iterable[str]) -> int:
    return sum(max(0, now.get(topic, 0) - before.get(topic, 0)) for topic in topics)


def compiled_from(records: Iterable[Record]) -> Mapping[bytes, Rules]:
    """Return the rules compiled from these definitions."""
    definitions = Definitions()
    for record in records:
        outcome = fold(definitions, record)
        assert isinstance(outcome, Done)  # noqa: S101 - the same records were folded before
        definitions = outcome.value
    return compile_rules(definitions, {})


def topics_for(run: Run, rules: Mapping[bytes, Rules], clock: Clock) -> tuple[str, ...]:
    """Return the topics that the leaves of the run read. Leaves of segments that are archived now do not count."""
    return past_topics(leaves_of(run, rules), rules, clock)


def leaves_of(run: Run, rules: Mapping[bytes, Rules]) -> dict[bytes, frozenset[str]]:
    """Return the run's leaves that the rules contain, by workspace."""
    found = {
        name.encode(): frozenset(leaves).intersection(rules[name.encode()].plan.leaves)
        for name, leaves in run.leaves.items()
        if name.encode() in rules
    }
    return {workspace: leaves for workspace, leaves in found.items() if leaves}
