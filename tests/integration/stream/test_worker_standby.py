"""Real workers with standby copies of one another's states: a takeover needs no replay.

The oracle is the plain fold: a user's outputs are 1, 2, 3 … up to the number of that user's events.
"""

import json
import shutil
import struct
import urllib.request
from pathlib import Path
from typing import Any

from rocksdict import AccessType, Options, Rdict

from tests.integration.stream.rig import Rig, Worker, wait_until
from tests.integration.stream.test_worker_faults import _counts, _expected, _send

COPIES = {"STARLING_STANDBY_REPLICAS": "1"}


def _logged(worker: Worker, event: str) -> list[dict[str, Any]]:
    """Return the log records of that event, in order."""
    lines = [json.loads(line) for line in worker.log.read_text().splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == event]


def _lags(worker: Worker) -> dict[int, float]:
    """Return partition -> the lag of its copy."""
    with urllib.request.urlopen(f"http://127.0.0.1:{worker.port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    lags = [line for line in lines if line.startswith("starling_stream_standby_lag_records{")]
    return {int(line.split('partition="')[1].split('"')[0]): float(line.rpartition(" ")[2]) for line in lags}


def _wait_for_copies(workers: list[Worker], each: int) -> None:
    def there() -> bool:
        lags = [_lags(worker) for worker in workers]
        return all(len(found) == each and not any(found.values()) for found in lags)

    wait_until(there, f"{each} copies each, up to date", details=lambda: str([_lags(worker) for worker in workers]))


def _position(path: Path) -> int:
    store: Any = Rdict(str(path), Options(raw_mode=True), access_type=AccessType.read_only())
    try:
        return int(struct.unpack(">Q", store[b"mposition"])[0])
    finally:
        store.close()


def test_a_takeover_starts_from_the_standby_copy(rig: Rig) -> None:
    sent = _send(rig, 600)
    lost, stays = rig.start("w0", **COPIES), rig.start("w1", **COPIES)
    rig.wait_settled([lost, stays])
    sent += _send(rig, 600)
    rig.wait_settled([lost, stays])
    _wait_for_copies([lost, stays], 2)
    own = set(_logged(stays, "assigned")[-1]["partitions"])
    lost.kill()
    shutil.rmtree(rig.directory / "w0")
    sent += _send(rig, 400)
    rig.wait_settled([stays])
    taken = [line for line in _logged(stays, "task_running")[-4:] if line["partition"] not in own]
    assert {line["partition"] for line in taken} == {0, 1, 2, 3} - own
    assert [(line["base"], line["restored"]) for line in taken] == [("disk", 0)] * len(taken)
    assert _counts(rig) == _expected(sent)


def test_a_new_worker_gets_partitions_of_its_copies_and_the_others_keep_copies_of_them(rig: Rig) -> None:
    sent = _send(rig, 400)
    first = rig.start("w0", **COPIES)
    rig.wait_settled([first])
    second = rig.start("w1", **COPIES)
    wait_until(second.ready, "the second worker")
    _wait_for_copies([first, second], 2)
    assert set(_logged(first, "assigned")[-1]["partitions"]) | set(_logged(second, "assigned")[-1]["partitions"]) == {0, 1, 2, 3}
    sent += _send(rig, 400)
    rig.wait_settled([first, second])
    _wait_for_copies([first, second], 2)
    for worker in (first, second):
        assert worker.terminate(leave=True) == 0
    positions = [
        {number: _position(rig.directory / disk / rig.stage / str(number)) for number in range(4)} for disk in ("w0", "w1")
    ]
    assert [number for number in range(4) if abs(positions[0][number] - positions[1][number]) > 2] == []
    assert _counts(rig) == _expected(sent)


def test_a_worker_without_standby_replicas_keeps_no_copies(rig: Rig) -> None:
    sent = _send(rig, 200)
    first, second = rig.start("w0"), rig.start("w1")
    rig.wait_settled([first, second])
    assert _logged(first, "assigned")[-1]["standbys"] == _logged(second, "assigned")[-1]["standbys"] == []
    assert _lags(first) == _lags(second) == {}
    assert _counts(rig) == _expected(sent)
