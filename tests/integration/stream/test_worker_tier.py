"""A real worker with Cassandra behind its disk: what it loses it finds there, and whatever is away or old does no harm.

The oracle is the plain fold: a user's outputs are 1, 2, 3 … up to the number of that user's events.
"""

import shutil
import urllib.request
from collections import Counter

import pytest

from starling_stream.failpoints import AFTER_COMMIT, AFTER_FLUSH, AFTER_STORE, MID_FLUSH
from tests.integration.projector.gate import Gate
from tests.integration.stream.rig import Rig, Worker, wait_until
from tests.integration.stream.test_worker_faults import USERS, Sent, _counts, _dead, _expected
from tests.unit.stream.counting import event


def _send(rig: Rig, count: int) -> list[tuple[str, bytes, bytes]]:
    made = rig.events(count, USERS)
    rig.send(made)
    return made


def _based_on(worker: Worker, base: str) -> int:
    """How many of its tasks were restored from that."""
    return worker.log.read_text().count(f'"base": "{base}"')


def _metric(worker: Worker, name: str) -> float:
    """Summed over its labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{worker.port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def test_a_lost_disk_is_found_again_in_cassandra(tiered: Rig) -> None:
    sent = _send(tiered, 600)
    first = tiered.start()
    tiered.wait_settled([first])
    assert first.terminate() == 0
    shutil.rmtree(tiered.directory / "w0")
    sent += _send(tiered, 600)
    second = tiered.start()
    tiered.wait_settled([second])
    assert _based_on(second, "tier") == tiered.partitions
    assert _counts(tiered) == _expected(sent)
    wait_until(lambda: _metric(second, "starling_stream_warm_ratio") == tiered.partitions, "all users to be local")
    assert _metric(second, "starling_stream_restored_records_total") < 50
