"""Adapter: reads a stage's states in all stores, for operators. Works beside the workers; only `rebuild` changes anything."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from aiokafka.partitioner import murmur2

from starling_common.cassandra.database import Database
from starling_common.retries import retrying
from starling_common.settings import Cassandra
from starling_common.time.instants import LATEST_MS, format_instant
from starling_common.wire import Registry
from starling_stream.inspect.consistency import ConsistencyCheck, Latest, StoreContents, compare
from starling_stream.model.backing_store import BackingStoreUnavailable, PartitionCopy, StageLayout, bucket_of
from starling_stream.model.rows import due_ms, row_due, row_version
from starling_stream.state.cassandra import CassandraBackingStore
from starling_stream.state.local_store import TaskStore, store_memory
from starling_stream.state.restore.restore import changelog_records

_MEMORY_BYTES: Final = 32 * 1024 * 1024
_CASSANDRA_SECONDS: Final = 30.0
"""How long a command waits for a busy node, whose first lightweight transaction can exceed the node's own time limit."""


Readable = Callable[[bytes], Any]
"""Converts the bytes of a state to JSON types. Raises: ValueError or msgspec.DecodeError for other bytes."""


class NoStates(Exception):
    """The stage has no states in Cassandra; the message contains the reason."""


class Source(NamedTuple):
    """The addresses of the stores. `disks`: the state directories of workers on this machine."""

    brokers: str
    registry_url: str
    cassandra: Cassandra
    disks: Sequence[Path] = ()


class Audit:
    """The states of one stage. Every method may block.

    Raises: BackingStoreUnavailable, KafkaException, RegistryUnavailable, SchemaMissing.
    """

    def __init__(self, stage: str, source: Source, readable: Readable | None = None) -> None:
        """`readable`: converts a state of the stage, if its bytes are more than MessagePack.

        Raises: NoStates when no worker of the stage has stored states in Cassandra.
        """
        self.stage = stage
        self._readable = readable or _readable
        self._source = source
        self._database = Database(source.cassandra)
        found = retrying(_CASSANDRA_SECONDS)(BackingStoreUnavailable, CassandraBackingStore(self._database, 1).frozen, stage)
        if found is None:
            self._database.close()
            raise NoStates(f"no states of {stage} are stored in Cassandra: start a worker with Cassandra configured")
        self.layout: StageLayout = found
        self._changelog = f"{stage}-state-changelog"
        self._log = found.topics[self._changelog]
        self._backing_store = CassandraBackingStore(self._database, found.buckets)
        self._codec = Registry(source.registry_url).codec(self._changelog, "StateChanged")

    def close(self) -> None:
        """Close the session."""
        self._database.close()

    def latest(self, partition: int) -> tuple[Latest, int]:
        """Return the last row of each key in the changelog, and the changelog's end."""
        rows: dict[bytes, tuple[int, bytes]] = {}
        end = 0
        for offset, key, row in changelog_records(self._source.brokers, self._changelog, partition, self._decode):
            end = offset
            if key:
                rows[key] = (offset, row)
        return rows, end

    def checks(self, partition: int) -> list[ConsistencyCheck]:
        """Compare Cassandra's rows and those of each disk with the changelog."""
        contents = [self._in_backing_store(partition), *self._on_disks(partition)]
        log, end = self.latest(partition)
        return [compare(one, log, end) for one in contents]

    def user(self, key: bytes) -> dict[str, Any]:
        """Return one user's state in all stores, in JSON types."""
        partition = (murmur2(key) & 0x7FFFFFFF) % self.layout.partitions
        copy, flushed_offset = self._copy(partition)
        written = self._backing_store.written_at(copy, key)
        log, end = self.latest(partition)
        last = log.get(key)
        found = {
            "changelog": None if last is None else {"offset": last[0], **self._shown(last[1])},
            "cassandra": None if written is None else {"written_at": written[1], **self._shown(written[0])},
            **{name: None if row is None else self._shown(row) for name, row in self._user_on_disks(partition, key)},
        }
        bucket = bucket_of(key, self.layout.buckets)
        where = {"partition": partition, "bucket": bucket, "flushed_offset": flushed_offset, "log_end": end}
        return {"stage": self.stage, "key": key.decode(), **where, "stores": found}

    def rebuild(self, partition: int) -> int:
        """Create an incarnation and return its number: the partition's worker restarts and rebuilds it from the changelog."""
        copy, _ = self._copy(partition)
        new = copy._replace(incarnation=copy.incarnation + 1)
        self._backing_store.begin(new)
        return new.incarnation

    def flushed_offset(self, partition: int) -> int | None:
        """Return the flushed offset of the newest incarnation."""
        return self._copy(partition)[1]

    def forget_layout(self) -> None:
        """Delete the frozen layout; the next start freezes its own."""
        self._backing_store.unfreeze(self.stage)

    def _copy(self, partition: int) -> tuple[PartitionCopy, int | None]:
        checkpoint = self._backing_store.checkpoint(self._log, partition)
        incarnation, flushed_offset = (0, None) if checkpoint is None else (checkpoint.incarnation, checkpoint.flushed_offset)
        return PartitionCopy(self._log, partition, incarnation), flushed_offset

    def _in_backing_store(self, partition: int) -> StoreContents:
        copy, flushed_offset = self._copy(partition)
        # The index is read before and after the rows: an entry that a worker moves meanwhile is in one of the two.
        dues = self._dues(copy)
        pages = (self._backing_store.scan(copy, bucket) for bucket in range(self.layout.buckets))
        rows = [row for bucket in pages for page in bucket for row in page]
        return StoreContents("cassandra", partition, flushed_offset, rows, dues=dues | self._dues(copy))

    def _dues(self, copy: PartitionCopy) -> frozenset[tuple[int, bytes]]:
        pages = (self._backing_store.dues(copy, bucket) for bucket in range(self.layout.buckets))
        return frozenset(entry for bucket in pages for page in bucket for entry in page)

    def _on_disks(self, partition: int) -> Iterator[StoreContents]:
        for name, store in self._stores(partition):
            yield StoreContents(name, partition, store.position(), list(store.all_rows()), self._not_in(store.unloaded()))

    def _not_in(self, unloaded: frozenset[int]) -> Callable[[bytes], bool]:
        return lambda key: bucket_of(key, self.layout.buckets) not in unloaded

    def _user_on_disks(self, partition: int, key: bytes) -> Iterator[tuple[str, bytes | None]]:
        for name, store in self._stores(partition):
            yield name, store.rows([key])[0]

    def _stores(self, partition: int) -> Iterator[tuple[str, TaskStore]]:
        memory = store_memory(_MEMORY_BYTES, _MEMORY_BYTES)
        for disk in self._source.disks:
            path = disk / self.stage / str(partition)
            if not path.is_dir():
                continue
            store = TaskStore(path, memory, read_only=True)
            try:
                yield f"disk {disk.name}", store
            finally:
                store.close()

    def _decode(self, value: bytes) -> tuple[int, bytes]:
        record = self._codec.decode(value)
        return record["version"], record["state"] or b""

    def _shown(self, row: bytes) -> dict[str, Any]:
        due = row_due(row)
        instant = None if due is None else due_ms(due)
        shown = instant if instant is None or not 0 <= instant <= LATEST_MS else format_instant(instant)
        return {"version": row_version(row), "gone": len(row) <= 8, "due": shown, "bytes": len(row), "state": self._state(row[16:])}

    def _state(self, payload: bytes) -> Any:
        try:
            return self._readable(payload) if payload else None
        except (msgspec.DecodeError, ValueError):
            return _readable(payload)  # damaged, or of a newer release: shown undecoded


def _readable(payload: bytes) -> Any:
    """Return the state in JSON types if it is MessagePack, with or without a format version; else hexadecimal."""
    for data in (payload, payload[1:]):
        try:
            return msgspec.to_builtins(msgspec.msgpack.decode(data), str_keys=True)
        except (msgspec.DecodeError, ValueError, TypeError):
            continue
    return payload.hex()
