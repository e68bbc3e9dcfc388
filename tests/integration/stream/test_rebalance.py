"""Partitions that stay with a worker do not stop when another one joins or leaves; no former owner commits for one that moved.

The oracle is the plain fold: a user's outputs are 1, 2, 3 … up to the number of that user's events.
"""

import time

import pytest

from starling_stream.model.failpoints import BEFORE_RELEASE
from tests.integration.stream.checks import LONG, counts_by_key, expected_counts, is_dead, logged_events, send_events
from tests.integration.stream.load import Load, load
from tests.integration.stream.rig import Rig, Worker, wait_until

COMMITS_OFTEN = {"STARLING_UNIT_MAX_RECORDS": "20"}
"""Many transactions for a backlog: one is in progress whenever the worker is suspended or killed."""


def _restored(worker: Worker) -> list[int]:
    return [line["partition"] for line in logged_events(worker, "task_running")]


def _partitions(worker: Worker) -> set[int]:
    assigned = logged_events(worker, "assigned")
    return set(assigned[-1]["partitions"]) if assigned else set()


def _report(what: str, made: Load, since: float, untouched: set[int]) -> None:
    """Print the pauses. They depend on the machine's other work, so no test compares them with a limit."""
    pauses = {number: round(made.longest_pause_ms(number, since)) for number in range(made.rig.partitions)}
    print(f"{what}: untouched", {number: pauses[number] for number in sorted(untouched)}, "all", pauses)  # noqa: T201 - the measurement


@pytest.mark.long
def test_partitions_that_stay_are_neither_stopped_nor_restored(rig: Rig) -> None:
    first = rig.start("w0", **LONG)
    wait_until(first.ready, "the first worker")
    with load(rig) as made:
        wait_until(lambda: len(made.arrivals) == rig.partitions, "outputs of every partition")
        since = time.monotonic()
        time.sleep(3)  # sleep: the measured window
        _report("nothing happens", made, since, {0, 1, 2, 3})
        since = time.monotonic()
        second = rig.start("w1", **LONG)
        wait_until(second.ready, "the second worker")
        wait_until(lambda: len(_restored(second)) == 2, "the second worker to have its share")
        stayed = _partitions(first)
        assert stayed | _partitions(second) == {0, 1, 2, 3}
        assert logged_events(first, "assigned")[-1]["continued"] == sorted(stayed)
        assert sorted(_restored(first)) == [0, 1, 2, 3]  # once, at its start
        time.sleep(1)  # sleep: the measured window
        _report("a worker joins", made, since, stayed)
        since = time.monotonic()
        assert second.terminate(leave=True) == 0
        wait_until(lambda: _partitions(first) == {0, 1, 2, 3}, "the first worker to have all partitions")
        wait_until(lambda: len(_restored(first)) == 6, "the first worker to have restored what it gained")
        time.sleep(1)  # sleep: the measured window
        _report("it leaves", made, since, stayed)
        assert logged_events(first, "assigned")[-1]["continued"] == sorted(stayed)
        assert sorted(_restored(first)[4:]) == sorted({0, 1, 2, 3} - stayed)
    rig.wait_settled([first])
    assert counts_by_key(rig) == expected_counts(made.sent)
    assert not logged_events(first, "fenced")


@pytest.mark.long
def test_outputs_are_exactly_once_over_many_rebalances_under_load(rig: Rig) -> None:
    first = rig.start("w0", **LONG)
    wait_until(first.ready, "the first worker")
    with load(rig) as made:
        for _ in range(3):
            others = [rig.start(name, **LONG) for name in ("w1", "w2")]
            for other in others:
                wait_until(other.ready, "another worker")
            for other in others:
                assert other.terminate(leave=True) == 0
    rig.wait_settled([first])
    assert counts_by_key(rig) == expected_counts(made.sent)
    assert first.alive()


@pytest.mark.long
@pytest.mark.parametrize("session", ["6", "600"])
def test_a_former_owner_that_is_suspended_before_it_stops_commits_nothing_for_what_moved(rig: Rig, session: str) -> None:
    """With a short session the group removes it meanwhile; with a long one it still has the partitions that stay."""
    settings = {"STARLING_SESSION_TIMEOUT_SECONDS": session, **COMMITS_OFTEN}
    former = rig.start("w0", STARLING_FAILPOINT=f"{BEFORE_RELEASE}:1:stop", **settings)
    wait_until(former.ready, "the first worker")
    sent = send_events(rig, 4_000)
    heir = rig.start("w1", **settings)
    wait_until(former.asleep, "the first worker to be suspended with the new assignment")
    sent += send_events(rig, 400)
    wait_until(lambda: len(_restored(heir)) >= 2, "the other worker to have its share")
    former.resume()
    sent += send_events(rig, 400)
    wait_until(lambda: is_dead(former) or rig.settled(), "the first worker to continue, or to end")
    if is_dead(former):  # the broker had given its transaction up; a supervisor starts it again
        former = rig.start("w0", **settings)
    rig.wait_settled([former, heir])
    assert counts_by_key(rig) == expected_counts(sent)


@pytest.mark.long
def test_a_former_owner_that_dies_before_it_stops_leaves_nothing_behind(rig: Rig) -> None:
    former = rig.start("w0", STARLING_FAILPOINT=f"{BEFORE_RELEASE}:1", **COMMITS_OFTEN)
    wait_until(former.ready, "the first worker")
    sent = send_events(rig, 4_000)
    heir = rig.start("w1", **COMMITS_OFTEN)
    wait_until(lambda: is_dead(former), "the first worker to kill itself with the new assignment")
    sent += send_events(rig, 400)
    rig.wait_settled([heir])
    assert counts_by_key(rig) == expected_counts(sent)


@pytest.mark.long
def test_a_removed_worker_begins_again_with_all_its_partitions(rig: Rig) -> None:
    """The group removes a worker that is suspended longer than its session: none of its tasks continues."""
    sent = send_events(rig, 400)
    removed, heir = rig.start("w0"), rig.start("w1")
    rig.wait_settled([removed, heir])
    wait_until(lambda: bool(_partitions(removed)) and bool(_partitions(heir)), "both workers to have their share")
    removed.suspend()
    wait_until(lambda: _partitions(heir) == {0, 1, 2, 3}, "the other worker to have all partitions")
    sent += send_events(rig, 400)
    rig.wait_settled([heir])
    assignments = len(logged_events(removed, "assigned"))
    removed.resume()
    wait_until(lambda: is_dead(removed) or len(logged_events(removed, "assigned")) > assignments, "it to rejoin, or to end")
    if is_dead(removed):
        removed = rig.start("w0")
    else:
        assert logged_events(removed, "assigned")[assignments]["continued"] == []
    sent += send_events(rig, 400)
    rig.wait_settled([removed, heir])
    assert counts_by_key(rig) == expected_counts(sent)
