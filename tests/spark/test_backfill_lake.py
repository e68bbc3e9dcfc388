"""The backfill with a lake: what it leaves is what it would leave of topics that had kept everything, each record counted once.

Real broker, registry and tables, in the session that all Spark tests share.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from starling_common.kafka.topics import BACKFILL_STATES, BACKFILLS, BEHAVIOUR
from starling_common.outcome import Done
from starling_common.settings import Clock
from starling_common.wire import Registry
from starling_rules.definitions import Definitions, fold
from starling_rules.history import PAST
from starling_rules.ledger import DONE, RUNNING, Run, Share
from starling_segments import UserState, decode_state, encode_state
from starling_spark.jobs.backfill.folding import WorkerSettings, gathered
from starling_spark.jobs.backfill.history import LakeHistory
from starling_spark.jobs.backfill.planning import Assignment, assignments, wanted
from starling_spark.jobs.backfill.reading import PastGone, PastReader
from starling_spark.jobs.backfill.wiring import in_a_worker
from starling_stream.model.processor import Inbound
from tests.conftest import Stack
from tests.spark.history import History, happened
from tests.spark.topics import Topics
from tests.unit.segmenter.segmenting import NOW_MICROS

IN_ORDER = {"abandoned", "reached"}


@pytest.fixture
def topics(stack: Stack) -> Iterator[Topics]:
    made = Topics(stack, (*PAST, BACKFILL_STATES, BACKFILLS))
    made.deploy()
    yield made
    made.remove()


def planned(past_feed: History, inputs: Mapping[str, int], *, in_order: bool) -> Assignment:
    """Return the assignment of a whole history for new segments: those that do not depend on its order, or all."""
    definitions = Definitions()
    for record in past_feed.definitions:
        if in_order or record["key"] not in IN_ORDER:
            outcome = fold(definitions, {**record, "awaits_backfill": True})
            definitions = outcome.value if isinstance(outcome, Done) else definitions
    waiting = wanted(definitions, Clock.EVENT)
    assert waiting is not None
    share = Share(0, "planned", dict(inputs), past_feed.segmenter.task.stream_time_ms, 0, 0)
    run = Run("run", RUNNING, NOW_MICROS, NOW_MICROS, waiting.versions, waiting.leaves, {0: share})
    (assignment,) = assignments(run, definitions, Clock.EVENT, 1)
    assert assignment.in_order is in_order
    return assignment


def remembered(past_feed: History, assignment: Assignment) -> dict[bytes, bytes]:
    """Return the states of a task that has read all records."""

    def read(topic: str, partition: int, first: int, until: int) -> Iterator[Inbound]:
        return (one for one in past_feed.segmenter.task._processed if one.topic == topic and first <= one.offset < until)

    past, _ = gathered(assignment, read)
    return kept_states(past, assignment)


def kept_states(past: Mapping[bytes, UserState], assignment: Assignment) -> dict[bytes, bytes]:
    return {
        key: encode_state(state)
        for key, state in past.items()
        if assignment.in_order or state.accumulators or state.waiting
    }  # fmt: skip


def written(topics: Topics, share: Share) -> dict[bytes, bytes]:
    """What the task wrote."""
    assert share.part is not None
    codec = Registry(topics.stack.registry_url).codec(topics.prefix + BACKFILL_STATES, "StateBackfilled")
    found = topics.read(BACKFILL_STATES, share.part.first, share.part.end)
    return {key: encode_state(decode_state(codec.decode(value)["state"])) for key, value in found}


def offsets(past_feed: History, count: int) -> dict[str, int]:
    """Topic -> how many of the first so many records went there."""
    return Counter(topic for topic, _, _ in past_feed.given[:count])


@pytest.mark.long
def test_each_record_counts_once_whether_the_lake_has_it_or_the_topic_or_both(spark: SparkSession, topics: Topics) -> None:
    past_feed = happened(5)
    third = len(past_feed.given) // 3
    topics.send_all(past_feed.given[:third])
    lake = topics.into_lake(spark)
    topics.send_all(past_feed.given[third : 2 * third])
    topics.into_lake(spark, lake, forget=False)
    topics.send_all(past_feed.given[2 * third :])
    place = WorkerSettings(topics.stack.brokers, topics.stack.registry_url, 60.0, topics.prefix)
    kept = LakeHistory(lake, topics.prefix)
    # The cut lies behind the lake's end, and before it: what comes after it is no part of the past.
    for in_order, takes_all, count, slices in ((False, False, -20, 1), (True, True, -20, 3), (True, False, -third - 20, 1)):
        cut = offsets(past_feed, len(past_feed.given) + count)
        assignment = planned(past_feed, cut, in_order=in_order)
        expected = remembered(past_feed, assignment)
        assert len(expected) > 10
        share = in_a_worker(spark, place, kept, takes_all=takes_all)(replace(assignment, slices=slices))
        assert written(topics, share) == expected
        assert (share.state, share.records_done) == (DONE, sum(cut[topic] for topic in (PAST if in_order else (BEHAVIOUR,))))


@pytest.mark.parametrize("with_lake", [pytest.param(True, marks=pytest.mark.long), False])
def test_a_record_that_makes_the_fold_raise_changes_nothing_else(
    spark: SparkSession, topics: Topics, monkeypatch: pytest.MonkeyPatch, with_lake: bool
) -> None:
    past_feed = happened(5)
    topics.send_all(past_feed.given)
    kept = LakeHistory(topics.into_lake(spark, forget=False), topics.prefix) if with_lake else None
    place = WorkerSettings(topics.stack.brokers, topics.stack.registry_url, 60.0, topics.prefix)
    assignment = planned(past_feed, offsets(past_feed, len(past_feed.given)), in_order=True)
    expected = remembered(past_feed, assignment)
    poisoned = min(expected)
    monkeypatch.setitem(spark.sparkContext.environment, "STARLING_FAILPOINT", f"raise_in_fold:{poisoned.decode()} ")
    share = in_a_worker(spark, place, kept, takes_all=with_lake)(assignment)
    found = written(topics, share)
    assert {key: state for key, state in expected.items() if key != poisoned} == found
    assert share.refused == sum(
        one.key == poisoned for one in past_feed.segmenter.task._processed if one.topic in assignment.topics
    )


@pytest.mark.long
def test_what_the_broker_let_go_of_meanwhile_is_not_passed_over(spark: SparkSession, topics: Topics) -> None:
    past_feed = happened(5)
    topics.send_all(past_feed.given)
    topics.into_lake(spark)
    reader = PastReader(topics.stack.brokers, lambda _topic, _value: pytest.fail("read"), print, prefix=topics.prefix)
    with pytest.raises(PastGone):
        list(reader.records(BEHAVIOUR, 0, 3, 10, is_there=True))
