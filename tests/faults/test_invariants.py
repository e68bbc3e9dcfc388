"""The guarantees of the stream layer, one test each. `docs/explanation/faults.md` lists the change that makes each fail."""

import shutil
import struct
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from rocksdict import AccessType, Options, Rdict

from starling_common.wire import Registry
from starling_stream.model.failpoints import AFTER_COMMIT, AFTER_FOLD, AFTER_PRODUCE, AFTER_STORE
from tests.faults.log import Logged, read_all
from tests.integration.stream.rig import Rig, Worker, wait_until
from tests.unit.stream.counting import HOUR_MS, event

USERS = 40
META = b"\x00meta"

Sent = list[tuple[str, bytes, bytes]]
Rows = dict[bytes, tuple[int, bytes]]
"""Key -> version and `due | payload`."""


def _send(rig: Rig, count: int) -> Sent:
    made = rig.events(count, USERS)
    rig.send(made)
    return made


def _counts(rig: Rig) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = defaultdict(list)
    for _, key, value in rig.read(f"{rig.stage}.out"):
        if not value.startswith(b"quiet"):
            found[key].append(int(value))
    return dict(found)


def _expected(sent: Sent) -> dict[bytes, list[int]]:
    """A user's outputs are 1, 2, 3 … up to the number of that user's events."""
    return {key: list(range(1, count + 1)) for key, count in Counter(key for _, key, _ in sent).items()}


def _killed_at(rig: Rig, place: str, **settings: str) -> None:
    victim = rig.start(STARLING_FAILPOINT=place, STARLING_UNIT_MAX_RECORDS="100", **settings)
    wait_until(lambda: not victim.alive(), f"the worker to kill itself at {place}")
    assert victim.process.returncode == -9


def _changelog(rig: Rig) -> dict[int, list[Logged]]:
    topic = f"{rig.stage}-state-changelog"
    return read_all(rig.brokers, [topic])[topic]


def _rows_up_to(rig: Rig, records: Iterable[Logged], position: int) -> Rows:
    codec = Registry(rig.registry_url).codec(f"{rig.stage}-state-changelog", "StateChanged")
    rows: Rows = {}
    for logged in records:
        if logged.offset < position and logged.key != META:
            record = codec.decode(logged.value)
            rows[logged.key] = record["version"], record["state"] or b""
    return rows


def _stored(path: Path) -> tuple[int, Rows]:
    """Return position and rows of a closed store."""
    store: Any = Rdict(str(path), Options(raw_mode=True), access_type=AccessType.read_only())
    try:
        position = struct.unpack(">Q", store[b"mposition"])[0] if b"mposition" in store else 0
        return position, {k[1:]: (struct.unpack_from(">Q", row)[0], bytes(row[8:])) for k, row in store.items() if k[:1] == b"s"}
    finally:
        store.close()


def _stores(rig: Rig, disk: str = "w0") -> dict[int, Path]:
    return {int(path.name): path for path in (rig.directory / disk / rig.stage).glob("*")}


def _refused(worker: Worker) -> bool:
    output = worker.log.read_bytes().lower()
    return b"fenced" in output or b"batch_aborted" in output or not worker.alive()


@pytest.mark.parametrize(
    "place", [pytest.param(one, marks=pytest.mark.long) for one in (AFTER_PRODUCE, AFTER_FOLD, AFTER_COMMIT, AFTER_STORE)]
)
def test_1_a_committed_output_is_there_exactly_once_whatever_was_killed(rig: Rig, place: str) -> None:
    sent = _send(rig, 600)
    _killed_at(rig, f"{place}:2")
    _killed_at(rig, f"{place}:1")
    rig.wait_settled([rig.start()])
    assert _counts(rig) == _expected(sent)


@pytest.mark.parametrize(
    "place", [AFTER_COMMIT, *(pytest.param(one, marks=pytest.mark.long) for one in (AFTER_FOLD, AFTER_PRODUCE, AFTER_STORE))]
)
def test_2_a_store_never_holds_anything_of_an_uncommitted_transaction(rig: Rig, place: str) -> None:
    _send(rig, 600)
    _killed_at(rig, f"{place}:5")
    changelog = _changelog(rig)
    stored = {number: _stored(path) for number, path in _stores(rig).items()}
    assert max(position for position, _ in stored.values()) > 0
    assert stored == {number: (position, _rows_up_to(rig, changelog[number], position)) for number, (position, _) in stored.items()}


@pytest.mark.long
def test_4_versions_of_a_state_only_ever_go_up_by_one_in_every_tier(rig: Rig) -> None:
    _send(rig, 400)
    _killed_at(rig, f"{AFTER_COMMIT}:2")
    _killed_at(rig, f"{AFTER_PRODUCE}:2")
    first = rig.start()
    rig.wait_settled([first])
    first.kill()
    shutil.rmtree(rig.directory / "w0")
    _send(rig, 400)
    second = rig.start()
    rig.wait_settled([second])
    assert second.terminate() == 0
    codec = Registry(rig.registry_url).codec(f"{rig.stage}-state-changelog", "StateChanged")
    versions: dict[bytes, list[int]] = defaultdict(list)
    for logged in (logged for records in _changelog(rig).values() for logged in records if logged.key != META):
        versions[logged.key].append(codec.decode(logged.value)["version"])
    assert len(versions) == USERS
    assert versions == {key: list(range(1, len(found) + 1)) for key, found in versions.items()}
    stored = {key: version for path in _stores(rig).values() for key, (version, _) in _stored(path)[1].items()}
    assert stored == {key: found[-1] for key, found in versions.items()}


@pytest.mark.long
def test_5_of_two_workers_that_hold_a_partition_only_the_newer_commits(rig: Rig) -> None:
    sent = _send(rig, 600)
    # Asleep with records folded and no transaction begun: nothing but the group's generation can refuse what it does next.
    older = rig.start("w0", STARLING_FAILPOINT=f"{AFTER_FOLD}:2:stop", STARLING_UNIT_MAX_RECORDS="200")
    wait_until(older.asleep, "the older worker to fall asleep")
    newer = rig.start("w1")
    rig.wait_settled([newer])
    older.resume()
    wait_until(lambda: _refused(older), "the older worker to be refused")
    wait_until(lambda: older.ready() or not older.alive(), "it to have left, or to be back with what it was given")
    sent += _send(rig, 400)
    rig.wait_settled([newer])
    assert _counts(rig) == _expected(sent)


@pytest.mark.long
def test_6_a_restored_task_has_the_output_of_one_that_never_stopped(rig: Rig) -> None:
    never_stopped = Rig(rig.brokers, rig.registry_url, rig.directory / "never-stopped")
    never_stopped.directory.mkdir()
    never_stopped.create()
    try:
        restored_out, steady_out = _restored(rig), _steady(never_stopped)
    finally:
        never_stopped.destroy()
    assert sum(value.startswith(b"quiet") for values in steady_out.values() for value in values) == 2 * USERS
    assert restored_out == steady_out


def _steady(rig: Rig) -> dict[bytes, list[bytes]]:
    worker = rig.start()
    for _ in range(2):
        _send(rig, 300)
        rig.wait_settled([worker])
        _hours_later(rig)
    return _outputs(rig)


def _restored(rig: Rig) -> dict[bytes, list[bytes]]:
    """The same with a new worker on an empty disk before everything that comes."""
    for number in range(2):
        _send(rig, 300)
        _once(rig, f"fold-{number}")
        worker = rig.start(disk=f"clock-{number}")
        _hours_later(rig)
        worker.kill()
    return _outputs(rig)


def _once(rig: Rig, disk: str) -> None:
    worker = rig.start(disk=disk)
    rig.wait_settled([worker])
    worker.kill()


def _hours_later(rig: Rig) -> None:
    rig.send_to_each_partition([(f"{rig.stage}.clock", None, event(1, rig.sent * HOUR_MS // 100))])
    wait_until(rig.clock_settled, "the clock to be reached everywhere")


def _outputs(rig: Rig) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = defaultdict(list)
    for _, key, value in rig.read(f"{rig.stage}.out"):
        found[key].append(value)
    return dict(found)
