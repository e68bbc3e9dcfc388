"""Real workers with standby copies of one another's states: a takeover needs no replay.

The oracle is the plain fold: a user's outputs are 1, 2, 3 … up to the number of that user's events.
"""

import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from rocksdict import AccessType, Options, Rdict

from tests.integration.stream.checks import (
    COPIES,
    counts_by_key,
    expected_counts,
    logged_events,
    send_events,
    standby_lags,
    wait_for_copies,
)
from tests.integration.stream.rig import Rig, wait_until


def _position(path: Path) -> int:
    store: Any = Rdict(str(path), Options(raw_mode=True), access_type=AccessType.read_only())
    try:
        return int(struct.unpack(">Q", store[b"mposition"])[0])
    finally:
        store.close()


@pytest.mark.long
def test_a_takeover_starts_from_the_standby_copy(rig: Rig) -> None:
    sent = send_events(rig, 600)
    lost, stays = rig.start("w0", **COPIES), rig.start("w1", **COPIES)
    rig.wait_settled([lost, stays])
    sent += send_events(rig, 600)
    rig.wait_settled([lost, stays])
    wait_for_copies([lost, stays], 2)
    own, restored = set(logged_events(stays, "assigned")[-1]["partitions"]), len(logged_events(stays, "task_running"))
    lost.kill()
    shutil.rmtree(rig.directory / "w0")
    sent += send_events(rig, 400)
    rig.wait_settled([stays])
    taken = logged_events(stays, "task_running")[restored:]
    assert {line["partition"] for line in taken} == {0, 1, 2, 3} - own
    assert [(line["base"], line["restored"]) for line in taken] == [("disk", 0)] * len(taken)
    assert counts_by_key(rig) == expected_counts(sent)


@pytest.mark.long
def test_a_new_worker_gets_partitions_of_its_copies_and_the_others_keep_copies_of_them(rig: Rig) -> None:
    sent = send_events(rig, 400)
    first = rig.start("w0", **COPIES)
    rig.wait_settled([first])
    second = rig.start("w1", **COPIES)
    wait_until(second.ready, "the second worker")
    wait_for_copies([first, second], 2)
    assigned = [logged_events(worker, "assigned")[-1]["partitions"] for worker in (first, second)]
    assert set(assigned[0]) | set(assigned[1]) == {0, 1, 2, 3}
    sent += send_events(rig, 400)
    rig.wait_settled([first, second])
    wait_for_copies([first, second], 2)
    for worker in (first, second):
        assert worker.terminate(leave=True) == 0
    positions = [
        {number: _position(rig.directory / disk / rig.stage / str(number)) for number in range(4)} for disk in ("w0", "w1")
    ]
    assert [number for number in range(4) if abs(positions[0][number] - positions[1][number]) > 2] == []
    assert counts_by_key(rig) == expected_counts(sent)


@pytest.mark.long
def test_a_worker_without_standby_replicas_keeps_no_copies(rig: Rig) -> None:
    sent = send_events(rig, 200)
    first, second = rig.start("w0"), rig.start("w1")
    rig.wait_settled([first, second])
    assert logged_events(first, "assigned")[-1]["standbys"] == logged_events(second, "assigned")[-1]["standbys"] == []
    assert standby_lags(first) == standby_lags(second) == {}
    assert counts_by_key(rig) == expected_counts(sent)
