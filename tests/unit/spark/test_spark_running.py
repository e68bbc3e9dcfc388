"""The reported progress and speed of running queries."""

import json
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from prometheus_client import CollectorRegistry, generate_latest

from starling_common.telemetry.metrics import Metrics
from starling_spark.jobs.profiles.query.positions import GroupPositions
from starling_spark.jobs.views.job import batch_completed, observed_times
from starling_spark.kafka.groups import end_offsets
from starling_spark.session.query_metrics import QueryMetrics, watermark_lag_seconds
from starling_spark.session.running import Running, Stall, WatchedQuery, slowest


def progress(batch: int = 3, **more: Any) -> str:
    return json.dumps(
        {
            "batchId": batch, "numInputRows": 10, "inputRowsPerSecond": 5.0, "processedRowsPerSecond": 7.5,
            "durationMs": {"triggerExecution": 1500},
            "stateOperators": [{"numRowsTotal": 4, "memoryUsedBytes": 100, "numRowsDroppedByWatermark": 2}],
            "eventTime": {"max": "2026-01-02T00:00:00.000Z", "watermark": "2026-01-01T00:00:00.000Z"},
            "sources": [{"endOffset": {"t": {"0": 5, "1": 7}}}, {"endOffset": 12}, {"endOffset": None}],
            "observedMetrics": {"times": {"p0": 17, "p1": None}},
        } | more
    )  # fmt: skip


def test_progress_becomes_metrics_and_each_batch_counts_once() -> None:
    metrics = Metrics(CollectorRegistry())
    recorded = QueryMetrics(metrics, "q")
    for text in (progress(), progress(), progress(4), progress(5, numInputRows=0)):
        recorded.record(text)
    text = generate_latest(metrics.registry).decode()
    for line in (
        'starling_spark_query_input_rows_per_second{query="q"} 5.0',
        'starling_spark_query_processed_rows_per_second{query="q"} 7.5',
        'starling_spark_query_state_rows{query="q"} 4.0',
        'starling_spark_query_state_bytes{query="q"} 100.0',
        'starling_spark_query_watermark_lag_seconds{query="q"} 86400.0',
        'starling_spark_query_too_late_rows_total{query="q"} 4.0',
        'starling_spark_query_batch_seconds_count{query="q"} 2.0',
        'starling_spark_query_batch_seconds_sum{query="q"} 3.0',
    ):
        assert line in text


def test_a_query_can_count_the_rows_of_its_state_itself() -> None:
    metrics = Metrics(CollectorRegistry())
    recorded = QueryMetrics(metrics, "q")
    recorded.count_rows = lambda: 7
    recorded.record(progress())
    assert 'starling_spark_query_state_rows{query="q"} 7.0' in generate_latest(metrics.registry).decode()


class Query:
    """A streaming query as it is looked at."""

    name = "q"

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.lastProgress: Any = None

    def exception(self) -> Exception | None:
        return self.failure


def test_each_progress_is_reported_once_and_a_failure_is_raised() -> None:
    query, metrics, moved = Query(), Metrics(CollectorRegistry()), list[str]()
    watched = WatchedQuery(Running("lake", query, QueryMetrics(metrics, "q"), moved.append))  # type: ignore[arg-type]
    assert (watched.poll(), watched.progress) == (False, None)
    query.lastProgress = SimpleNamespace(json=progress())
    assert [watched.poll(), watched.poll()] == [True, False]
    query.lastProgress, query.failure = SimpleNamespace(json=progress(4)), ValueError("broken")
    with pytest.raises(ValueError, match="broken"):
        watched.poll()
    assert watched.poll(is_last=True)
    assert moved == [progress(), progress(4)]
    assert 'starling_spark_query_batch_seconds_count{query="q"} 2.0' in generate_latest(metrics.registry).decode()


class Group:
    """A consumer group that stores its commits."""

    def __init__(self, notes: Mapping[tuple[str, int], str]) -> None:
        self.notes = dict(notes)
        self.committed: dict[tuple[str, int], int] = {}

    def load(self, _topics: Sequence[str]) -> Mapping[tuple[str, int], str]:
        return self.notes

    def ends(self, _topics: Sequence[str]) -> Mapping[tuple[str, int], int]:
        return {("t", 0): 9, ("t", 1): 0}

    def commit(self, ends: Mapping[tuple[str, int], int], notes: Mapping[tuple[str, int], str]) -> None:
        self.committed.update(ends)
        self.notes = {place: notes[place] for place in ends if place in notes}


def test_skipped_records_are_not_committed() -> None:
    group = Group({("t", 0): "3", ("t", 1): "", ("t", 2): "no number"})
    positions = GroupPositions(group)  # type: ignore[arg-type]
    positions.load(["t"])
    assert positions.read_up_to() == {("t", 0): 3}
    assert positions.ends(["t"]) == {("t", 0): 9}
    positions.commit({("t", 0): 9}, read=False)
    assert (group.committed, group.notes) == ({("t", 0): 9}, {("t", 0): "3"})
    positions.commit({("t", 0): 2, ("t", 1): 4}, read=True)
    assert (group.committed, group.notes) == ({("t", 0): 2, ("t", 1): 4}, {("t", 0): "3", ("t", 1): "4"})


def test_the_stream_times_are_committed_and_never_decrease() -> None:
    group = Group({("t", 0): "3 5000", ("u", 0): "1 4000"})
    positions = GroupPositions(group)  # type: ignore[arg-type]
    positions.load(["t", "u"])
    assert positions.read_up_to() == {("t", 0): 3, ("u", 0): 1}
    positions.commit({("t", 0): 4, ("t", 1): 4}, read=True, stream_times={0: 2_000, 1: 7_000})
    assert group.notes == {("t", 0): "4 5000", ("t", 1): "4 7000"}
    positions.commit({("t", 0): 4}, read=True, stream_times={0: 8_000})
    assert group.notes == {("t", 0): "4 8000"}


def test_the_progress_of_a_history_is_committed_at_an_offset_that_stays() -> None:
    group = Group({("definitions", 0): "3 5000"})
    positions = GroupPositions(group)  # type: ignore[arg-type]
    positions.load(["definitions"])
    positions.commit({("t", 0): 4}, read=True, history={("definitions", 0): (10, 40), ("unknown", 0): (1, 2)})
    assert (group.committed, group.notes) == (
        {("t", 0): 4, ("definitions", 0): 3},
        {("t", 0): "4 5000", ("definitions", 0): "3 0 10 40"},
    )
    positions.commit({("definitions", 0): 5}, read=True)
    assert group.notes == {("definitions", 0): "5 5000"}


def test_a_query_without_a_watermark_has_no_lag() -> None:
    assert watermark_lag_seconds({"eventTime": {}}) is None
    assert watermark_lag_seconds({"eventTime": {"watermark": "1970-01-01T00:00:00.000Z"}}) is None


def test_the_group_commits_the_slowest_query_once_all_have_reported() -> None:
    one, other = end_offsets(progress()), {("t", 0): 2, ("t", 1): 9, ("u", 0): 1}
    assert one == {("t", 0): 5, ("t", 1): 7}
    assert slowest([one, other], 2) == {("t", 0): 2, ("t", 1): 7, ("u", 0): 1}
    assert slowest([one], 2) == {}


class MemoryViewStore:
    """A view store in memory."""

    def __init__(self) -> None:
        self.times: dict[int, int] = {}
        self.published = 0

    def write_times(self, highest: Mapping[int, int]) -> None:
        self.times |= highest

    def publish_version(self) -> None:
        self.published += 1


def test_new_versions_take_over_when_their_query_has_caught_up() -> None:
    stores, history, published = [MemoryViewStore(), MemoryViewStore()], {("t", 0): 5, ("t", 1): 8}, list[int]()

    def completed(progress: str) -> None:
        batch_completed(history, stores, lambda: published.append(stores[-1].published), progress)  # type: ignore[arg-type]

    completed(progress())
    assert [(store.times, store.published) for store in stores] == [({0: 17}, 0)] * 2
    assert published == []
    completed(progress(sources=[{"endOffset": {"t": {"0": 5, "1": 8}}}]))
    assert [store.published for store in stores] == [1, 1]
    assert published == [1]


def test_partitions_without_a_record_have_no_time() -> None:
    assert observed_times(progress()) == {0: 17}
    assert observed_times(progress(observedMetrics={})) == {}


class Stalling:
    """A job that is looked at every ten seconds. `ends`: the input; None while the broker does not answer."""

    def __init__(self, ends: Mapping[tuple[str, int], int] | None) -> None:
        self.ends = ends
        self.now = 0.0
        self.tasks = 0
        self.stall = Stall(self._ends, lambda: self.tasks, lambda: self.now)

    def _ends(self, _topics: Sequence[str]) -> Mapping[tuple[str, int], int]:
        if self.ends is None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return self.ends

    def after(self, seconds: float) -> str | None:
        until = self.now + seconds
        while self.now < until:
            self.now += 10
            self.stall.look("progress", {("t", 0): 5})
        return self.stall.problem


def test_no_progress_beside_input_is_a_stall() -> None:
    job = Stalling({("t", 0): 6})
    assert job.after(900) is None
    assert job.after(10) == "no progress for 900 s although there is input: restart this process"
    job.tasks += 1
    assert job.after(10) is None


@pytest.mark.parametrize("ends", [{("t", 0): 5}, None], ids=["no input", "no broker"])
def test_no_progress_without_input_is_none(ends: Mapping[tuple[str, int], int] | None) -> None:
    assert Stalling(ends).after(5000) is None


def test_a_batch_whose_tasks_complete_is_no_stall() -> None:
    job = Stalling({("t", 0): 6})
    for _ in range(10):
        job.tasks += 1
        assert job.after(800) is None
