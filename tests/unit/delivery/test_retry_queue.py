"""Retries wait for their time without forgetting or repeating any; the oracle is a set."""

from hypothesis import given
from hypothesis import strategies as st

from starling_delivery.retry_queue import METADATA_LIMIT, Progress, RetryQueue


@given(st.integers(0, 5), st.permutations(range(12)), st.integers(0, 12))
def test_what_is_restored_is_what_was_done(start: int, order: list[int], finished: int) -> None:
    progress = Progress(start)
    done = {start + offset for offset in order[:finished]}
    for offset in done:
        progress.finish(offset)
    restored = Progress.restored(progress.position, progress.metadata())
    for offset in range(start, start + 15):
        assert progress.is_done(offset) == restored.is_done(offset) == (offset in done)
    assert progress.position == next(offset for offset in range(start, start + 15) if offset not in done)


def test_metadata_never_grows_beyond_what_the_broker_takes() -> None:
    progress = Progress(0)
    for offset in range(1, 20_000, 2):
        progress.finish(offset)
    text = progress.metadata()
    assert 0 < len(text) <= METADATA_LIMIT
    restored = Progress.restored(0, text)
    assert restored.is_done(1)
    assert not any(restored.is_done(offset) for offset in range(0, 20_000, 2))


def test_metadata_that_is_not_ours_counts_as_none() -> None:
    for text in ("", "null", "{}", "hello", "[1]", '[["a", "b"]]'):
        assert Progress.restored(7, text) == Progress(7)


def test_a_waiting_retry_blocks_no_other() -> None:
    queue = RetryQueue()
    queue.open(0, Progress(0))
    queue.add(0, 0, "in an hour", 3_600_000)
    queue.add(0, 1, "now", 10)
    assert queue.due(10, 100) == [(0, 1, "now")]
    queue.finish(0, 1)
    assert [(n, p.position, p.metadata()) for n, p in queue.progress()] == [(0, 0, "[[1,1]]")]
    assert queue.due(3_600_000, 100) == [(0, 0, "in an hour")]
    queue.finish(0, 0)
    assert [(n, p.position, p.metadata()) for n, p in queue.progress()] == [(0, 2, "")]


def test_what_was_done_before_a_restart_is_not_done_again() -> None:
    queue = RetryQueue()
    queue.open(3, Progress.restored(10, "[[2,3]]"))
    for offset in range(10, 15):
        queue.add(3, offset, offset, 0)
    assert [offset for _, offset, _ in queue.due(0, 100)] == [10, 11, 14]


def test_a_partition_that_went_elsewhere_is_forgotten() -> None:
    queue = RetryQueue()
    for partition in (0, 1):
        queue.open(partition, Progress(0))
        queue.add(partition, 0, partition, 5)
    queue.close(0)
    queue.add(0, 1, "late", 5)
    assert queue.due(5, 100) == [(1, 0, 1)]
    queue.finish(0, 0)
    assert len(queue) == 0
