"""Standby copies on a real broker: they contain the changelog's rows, whatever happens to log, disk and broker."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from prometheus_client import CollectorRegistry

from starling_common.kafka.clients import consumer_config, producer_config
from starling_common.telemetry.metrics import Metrics
from starling_stream.model.changelog import decode_state_changed, encode_state_changed
from starling_stream.model.meta import TaskMeta, encode_meta
from starling_stream.model.ports import NoFlusher
from starling_stream.model.rows import META_KEY, NEVER, row_of
from starling_stream.state.local_store import Origin, TaskStore, store_memory
from starling_stream.state.metrics import Gauges
from starling_stream.state.restore.restore import Plan, apply_messages
from starling_stream.state.restore.standby import Standbys
from tests.integration.stream.rig import Rig, wait_until

HEADER = b"\0\0\0\0\x07"
MIB = 1024 * 1024


class _Log:
    """The changelog of a rig, written as a worker's transactions would write it."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.topic = f"{rig.stage}-state-changelog"
        self._producer = Producer(producer_config(rig.brokers, **{"transactional.id": rig.stage}))
        self._producer.init_transactions(30)
        self.versions: dict[tuple[int, bytes], int] = {}

    def write(self, number: int, keys: range, *, commit: bool = True) -> None:
        self._producer.begin_transaction()
        for key in (b"default/u%d" % key for key in keys):
            version = self.versions.get((number, key), 0) + 1
            if commit:
                self.versions[number, key] = version
            self._put(number, key, version, b"%b of %d" % (key, version))
        self._put(number, META_KEY, 1, encode_meta(TaskMeta(len(keys))))
        self._producer.flush(30)
        if commit:
            self._producer.commit_transaction(30)
        else:
            self._producer.abort_transaction(30)

    def _put(self, number: int, key: bytes, version: int, payload: bytes) -> None:
        self._producer.produce(self.topic, encode_state_changed(HEADER, version, NEVER + payload), key, number)

    def end(self, number: int) -> int:
        """Return the log's end. The markers of a commit are written after its response, so the end may still grow."""
        reader = Consumer(consumer_config(self.rig.brokers, "end", **{"isolation.level": "read_uncommitted"}))
        try:
            found = reader.get_watermark_offsets(TopicPartition(self.topic, number), timeout=30, cached=False)
            assert found is not None
            return found[1]
        finally:
            reader.close()

    def rows(self, number: int) -> dict[bytes, bytes]:
        """Return the rows of a complete store."""
        own = {key: version for (partition, key), version in self.versions.items() if partition == number}
        return {key: row_of(version, NEVER + b"%b of %d" % (key, version)) for key, version in own.items()}


class _Disk:
    """A worker's directory with standby copies."""

    def __init__(self, log: _Log, path: Path) -> None:
        self._log = log
        self.path = path
        self.topic_id = "the first"
        self.memory = store_memory(16 * MIB, 8 * MIB)
        self.metrics = Metrics(CollectorRegistry())
        self.standbys = Standbys(self.plan, self.memory, Gauges(self.metrics))

    def plan(self, number: int) -> Plan:
        rig, topic = self._log.rig, self._log.topic
        origin = Origin(topic, self.topic_id, rig.partitions)
        path, flusher = self.path / str(number), NoFlusher()
        return Plan(rig.brokers, rig.group, topic, number, (), rig.stage, origin, path, HEADER, decode_state_changed, flusher, 0)

    def wait_for(self, number: int) -> None:
        """Wait until the copy is at the log's end, compare its rows, and follow it again."""
        end = self._log.end(number)
        wait_until(lambda: self.standbys.positions().get(number, -1) >= end, f"the copy of {number} to be at {end}", 60)
        store = self.taken(number)
        rows = dict(store.all_rows())
        store.close()
        self.standbys.follow(range(self._log.rig.partitions))
        assert rows == self._log.rows(number)

    def taken(self, number: int) -> TaskStore:
        """Return the store of a copy once it is open."""
        wait_until(lambda: number in self.standbys.positions(), f"the copy of {number} to be open", 60)
        store = self.standbys.take(number)
        assert store is not None
        return store

    def restart(self) -> None:
        self.standbys.close()
        self.standbys = Standbys(self.plan, self.memory, Gauges(Metrics(CollectorRegistry())))
        self.standbys.follow(range(self._log.rig.partitions))


@pytest.fixture
def log(rig: Rig) -> _Log:
    return _Log(rig)


@pytest.fixture
def disk(log: _Log, tmp_path: Path) -> Iterator[_Disk]:
    made = _Disk(log, tmp_path / "copies")
    made.standbys.follow(range(log.rig.partitions))
    yield made
    made.standbys.close()


def test_copies_contain_committed_rows_only(log: _Log, disk: _Disk) -> None:
    for number in range(3):
        log.write(number, range(50 * (number + 1)))
    log.write(0, range(20), commit=False)
    log.write(0, range(10, 30))
    for number in range(4):
        disk.wait_for(number)


def test_a_store_handed_over_is_not_written_and_is_followed_again_later(log: _Log, disk: _Disk) -> None:
    log.write(1, range(50))
    disk.wait_for(1)
    store = disk.taken(1)
    assert disk.standbys.take(1) is None
    log.write(1, range(40, 60))
    log.write(2, range(10))
    disk.wait_for(2)
    assert len(dict(store.all_rows())) == 50  # not written meanwhile
    store.close()
    disk.standbys.follow(range(4))
    disk.wait_for(1)


def test_a_copy_that_returns_older_is_brought_up_to_date(log: _Log, disk: _Disk) -> None:
    """Records in transit from the former position must not be taken for those after the present one."""
    log.write(0, range(50))
    disk.wait_for(0)
    disk.taken(0).close()
    TaskStore.destroy(disk.path / "0")
    log.write(0, range(40, 60))
    disk.standbys.follow(range(4))
    disk.wait_for(0)


def test_a_copy_continues_after_a_restart(log: _Log, disk: _Disk, capsys: pytest.CaptureFixture[str]) -> None:
    log.write(0, range(50))
    disk.wait_for(0)
    disk.restart()
    log.write(0, range(40, 60))
    disk.wait_for(0)
    assert "standby_recreated" not in capsys.readouterr().out


def test_a_copy_that_ends_before_the_logs_start_is_created_again(log: _Log, disk: _Disk) -> None:
    log.write(0, range(50))
    disk.wait_for(0)
    disk.standbys.close()
    log.write(0, range(50))
    log.rig.cut_changelog()
    log.versions = {key: version for key, version in log.versions.items() if key[0] != 0}
    log.write(0, range(100, 150))
    disk.restart()
    disk.wait_for(0)


def test_a_damaged_copy_is_created_again(log: _Log, disk: _Disk) -> None:
    log.write(0, range(50))
    disk.wait_for(0)
    disk.standbys.close()
    (disk.path / "0" / "CURRENT").write_text("nonsense\n")
    disk.restart()
    disk.wait_for(0)


def test_a_copy_of_another_log_is_refused_and_the_others_continue(
    log: _Log, disk: _Disk, capsys: pytest.CaptureFixture[str]
) -> None:
    log.write(0, range(50))
    disk.wait_for(0)
    disk.standbys.close()
    disk.topic_id = "the second"
    for number in (1, 2, 3):
        TaskStore.destroy(disk.path / str(number))
    log.write(1, range(20))
    disk.restart()
    disk.wait_for(1)
    assert disk.standbys.take(0) is None


def test_a_failed_batch_is_retried(log: _Log, disk: _Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a disk that is full for a while: copies are optional, so the worker continues."""
    monkeypatch.setattr("starling_stream.state.restore.standby._RETRY_SECONDS", 0.1)
    failures = 3

    def failing(*given: object) -> None:
        nonlocal failures
        if failures:
            failures -= 1
            raise OSError("no space left")
        apply_messages(*given)  # type: ignore[arg-type]

    monkeypatch.setattr("starling_stream.state.restore.standby.apply_messages", failing)
    log.write(0, range(50))
    disk.wait_for(0)
    assert failures == 0


def test_copies_that_are_no_longer_assigned_are_closed(log: _Log, disk: _Disk) -> None:
    log.write(0, range(50))
    disk.wait_for(0)
    disk.standbys.follow([2])
    wait_until(lambda: disk.standbys.positions().keys() == {2}, "the others to be closed", 60)
    assert disk.standbys.followed() == {2}
    TaskStore(disk.path / "0", disk.memory).close()  # it is not open elsewhere


def _lags(disk: _Disk) -> dict[str, float]:
    found = disk.metrics.registry.collect()
    return {
        sample.labels["partition"]: sample.value
        for metric in found
        for sample in metric.samples
        if sample.name == "starling_stream_standby_lag_records"
    }


def test_the_lag_of_each_copy_is_reported(log: _Log, disk: _Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("starling_stream.state.restore.standby._REPORT_SECONDS", 0.1)
    for number in range(4):
        log.write(number, range(5))
    wait_until(lambda: _lags(disk) == {"0": 0, "1": 0, "2": 0, "3": 0}, "all copies", 60, details=lambda: str(_lags(disk)))
    disk.standbys.follow([2])
    wait_until(lambda: _lags(disk).keys() == {"2"}, "one copy", 60, details=lambda: str(_lags(disk)))
    disk.standbys.follow([])
    wait_until(lambda: _lags(disk) == {}, "none", 60, details=lambda: str(_lags(disk)))
