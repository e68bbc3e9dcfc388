"""Adapter: the local store of a task, one RocksDB. It contains the results of committed transactions only.

Keys: `s` + key: the row · `t` + due (8 bytes) + key: a timer · `m` + name: position, task meta, origin. The write-ahead log is on,
without fsync: a crash of the process loses nothing, a crash of the machine falls back to the changelog's tail.
"""

import re
import shutil
import struct
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    DbClosedError,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteBufferManager,
)

from starling_common.failures import InstallationFailure
from starling_stream.model.meta import TaskMeta, decode_meta, encode_meta
from starling_stream.model.ports import Changed
from starling_stream.model.rows import due_bytes, due_ms, row_due, row_version

_U64: Final = struct.Struct(">Q")
_STATE, _TIMER, _META = b"s", b"t", b"m"
_POSITION, _TASK, _ORIGIN = b"mposition", b"mtask", b"morigin"
_INCARNATION, _UNLOADED, _FAILED = b"mincarnation", b"mcold", b"mfailed"
_FIRST_DUE: Final = bytes(8)
_NO_DUE: Final = b"\xff" * 8
_CACHE_READS: Final = re.compile(r"^rocksdb\.block\.cache\.(hit|miss) COUNT : (\d+)", re.MULTILINE)
_NEVER_MS: Final = (1 << 63) - 1
_DAMAGED: Final = "DAMAGED"
"""A file of this name in the store's directory: damage was found, and the store must not be opened again."""


class Origin(msgspec.Struct, frozen=True):
    """The changelog of a store, frozen at its first write. `topic_id` is the broker's id of the topic."""

    changelog: str
    topic_id: str
    partitions: int


class StoreMismatch(Exception):
    """The store on disk belongs to another changelog; the message contains the cure."""


class StoreFailed(InstallationFailure):
    """RocksDB could not read or write; the message is its own."""


class StoreDamaged(Exception):
    """Corruption was found in the store before; its rows are unreliable."""


class StoreMemory(NamedTuple):
    """The memory that all stores of a process share, so that it does not grow with partitions."""

    cache: Cache
    buffers: WriteBufferManager
    options: Options

    def cache_reads(self) -> tuple[int, int]:
        """Return (hits, misses) of the block cache since the start of the process."""
        counts = dict(_CACHE_READS.findall(self.options.get_statistics() or ""))
        return int(counts.get("hit", 0)), int(counts.get("miss", 0))


def store_memory(cache_bytes: int, buffer_bytes: int) -> StoreMemory:
    """Return the shared memory. `buffer_bytes` of unwritten rows count towards the cache."""
    cache = Cache(cache_bytes)
    buffers = WriteBufferManager.new_write_buffer_manager_with_cache(buffer_bytes, False, cache)
    return StoreMemory(cache, buffers, _options(cache, buffers))


class _Scan:
    """A scan for the first timer in progress; timers put meanwhile may be earlier than its result."""

    __slots__ = ("put_meanwhile",)

    def __init__(self) -> None:
        self.put_meanwhile = _NO_DUE


class TaskStore:
    """A `StateView` on disk. `apply` may run in another thread than the reads."""

    def __init__(self, path: Path, memory: StoreMemory, *, read_only: bool = False) -> None:
        """Open or create the store. Raises: StoreDamaged, and RocksDB's errors for a broken directory or one in use.

        `read_only`: read the present rows while another process has the store open.
        """
        path.mkdir(parents=True, exist_ok=True)
        if (path / _DAMAGED).exists():
            raise StoreDamaged(f"Corruption was found in {path} when it was read")
        self.path = path
        access = AccessType.read_only() if read_only else AccessType.read_write()
        self._db: Any = Rdict(str(path), memory.options, access_type=access)
        self._timers = _bounded(_TIMER)
        self._states = _bounded(_STATE)
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        """Held over a write, and over a comparison with the write after it."""
        self._earliest = _FIRST_DUE
        """No timer is due before this; scans start here and so skip the tombstones of fired timers."""
        self._scans: list[_Scan] = []
        """The scans in progress."""

    def rows(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the rows in the order of the keys; None where a key has none."""
        with self._damage_marked():
            found: list[bytes | None] = self._db.get([_STATE + key for key in keys])
        return found

    def due(self, until_ms: int, limit: int) -> list[tuple[int, bytes]]:
        """Return the first (due, key) up to and including that instant, ascending."""
        until, scan = due_bytes(until_ms), _Scan()
        with self._lock:
            earliest = self._earliest
            if earliest > until:
                return []
            self._scans.append(scan)
        try:
            return self._due(earliest, until, limit, scan)
        finally:
            with self._lock:
                self._scans.remove(scan)

    def _due(self, earliest: bytes, until: bytes, limit: int, scan: "_Scan") -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        first = _NO_DUE
        for timer, _ in self._scan(_TIMER + earliest, self._timers):
            due = timer[1:9]
            if not found:
                first = due
            if due > until or len(found) == limit:
                break
            found.append((due_ms(due) or 0, timer[9:]))
        with self._lock:
            self._earliest = min(first, scan.put_meanwhile)
        return found

    def keys(self, after: bytes, limit: int) -> list[bytes]:
        """Return the first keys after `after` that have a state, ascending."""
        found: list[bytes] = []
        for key, row in self._scan(_STATE + after + b"\x00", self._states):
            if len(found) == limit:
                break
            if len(row) >= 16:
                found.append(key[1:])
        return found

    def apply(self, changes: Mapping[bytes, Changed], meta: TaskMeta | None, position: int | None) -> None:
        """Write one committed unit in one batch. `position`: the changelog offset after it."""
        batch = WriteBatch(raw_mode=True)
        earliest = _NO_DUE
        put, delete = batch.put, batch.delete
        # In the order of keys: RocksDB writes a sorted batch in two thirds of the time (1.8 -> 1.2 us a row).
        for key, (before, after) in sorted(changes.items()):
            put(_STATE + key, after)
            was, now = row_due(before), row_due(after)
            if was != now:
                if was is not None:
                    delete(_TIMER + was + key)
                if now is not None:
                    put(_TIMER + now + key, b"")
                    earliest = min(earliest, now)
        if meta is not None:
            put(_TASK, encode_meta(meta))
        if position is not None:
            put(_POSITION, _U64.pack(position))
        with self._writing, self._damage_marked():
            self._db.write(batch)
        self._note_put(earliest)

    def adopt(self, rows: Mapping[bytes, bytes]) -> None:
        """Write rows of the backing store, except those whose version here is the same or newer."""
        batch, earliest = WriteBatch(raw_mode=True), _NO_DUE
        with self._writing, self._damage_marked():
            for (key, row), known in zip(rows.items(), self.rows(list(rows)), strict=True):
                if row_version(known) >= row_version(row):
                    continue
                was, due = row_due(known), row_due(row)
                batch.put(_STATE + key, row)
                if was is not None:
                    batch.delete(_TIMER + was + key)
                if due is not None:
                    batch.put(_TIMER + due + key, b"")
                    earliest = min(earliest, due)
            self._db.write(batch)
        self._note_put(earliest)

    def _note_put(self, earliest: bytes) -> None:
        """Lower `_earliest` after a write: later scans see the timers, and scans in progress are informed."""
        with self._lock:
            self._earliest = min(self._earliest, earliest)
            for scan in self._scans:
                scan.put_meanwhile = min(scan.put_meanwhile, earliest)

    def begin_unloaded(self, position: int, meta: TaskMeta, buckets: int, incarnation: int) -> None:
        """Initialise an empty store from a checkpoint: every bucket is unloaded."""
        batch = WriteBatch(raw_mode=True)
        batch.put(_INCARNATION, _U64.pack(incarnation))
        batch.put(_POSITION, _U64.pack(position))
        batch.put(_TASK, encode_meta(meta))
        batch.put(_UNLOADED, msgspec.msgpack.encode(list(range(buckets))))
        self._db.write(batch)

    def unloaded(self) -> frozenset[int]:
        """Return the buckets with users that are only in the backing store."""
        found = self._get(_UNLOADED)
        return frozenset() if found is None else frozenset(msgspec.msgpack.decode(found, type=list[int]))

    def set_unloaded(self, buckets: Iterable[int]) -> None:
        """Store which buckets are unloaded."""
        self._db[_UNLOADED] = msgspec.msgpack.encode(sorted(buckets))

    def incarnation(self) -> int | None:
        """Return the incarnation of the backing store that belongs to this store; None before the backing store was reached."""
        found = self._get(_INCARNATION)
        return None if found is None else int(_U64.unpack(found)[0])

    def set_incarnation(self, incarnation: int) -> None:
        """Store the incarnation of the backing store."""
        self._db[_INCARNATION] = _U64.pack(incarnation)

    def failed_at(self) -> int | None:
        """Return the number of committed units at the task's last failure; None if it never failed."""
        found = self._get(_FAILED)
        return None if found is None else int(_U64.unpack(found)[0])

    def set_failed_at(self, units: int) -> None:
        """Store the number of committed units at a failure of the task, for a comparison after a restart."""
        with self._damage_marked():
            self._db[_FAILED] = _U64.pack(units)

    def rows_after(self, after: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return the first (key, row) after `after`, deleted keys included, ascending."""
        rows = self._scan(_STATE + after + b"\x00", self._states)
        return [(key[1:], row) for (key, row), _ in zip(rows, range(limit), strict=False)]

    def earliest_ms(self) -> int:
        """Return an instant before which no user is due; it may be earlier than the first timer."""
        with self._lock:
            found = due_ms(self._earliest)
        return _NEVER_MS if found is None else found

    def position(self) -> int | None:
        """Return the changelog offset before which this store is complete; None for a new store."""
        found = self._get(_POSITION)
        return None if found is None else int(_U64.unpack(found)[0])

    def meta(self) -> TaskMeta:
        """Return the task's own row."""
        found = self._get(_TASK)
        return TaskMeta() if found is None else decode_meta(found)

    def check_origin(self, origin: Origin) -> None:
        """Freeze the origin of the store, or compare it. Raises: StoreMismatch."""
        found = self._get(_ORIGIN)
        if found is None:
            self._db[_ORIGIN] = msgspec.msgpack.encode(origin)
            return
        known = msgspec.msgpack.decode(found, type=Origin)
        if known != origin:
            raise StoreMismatch(
                f"{self.path} was built from {known}, but the broker has {origin}: if that is intended, delete the directory "
                "and start again, the state is then rebuilt from the changelog; if not, restore the topic"
            )

    def all_rows(self) -> Iterable[tuple[bytes, bytes]]:
        """Return every row, for comparisons in tests and tools."""
        for key, row in self._scan(_STATE, self._states):
            yield key[1:], row

    def _get(self, name: bytes) -> bytes | None:
        with self._damage_marked():
            found: bytes | None = self._db.get(name)
        return found

    def _scan(self, first: bytes, within: ReadOptions) -> Iterator[tuple[bytes, bytes]]:
        """Return keys and values from there on.

        The client's scan ends silently at a damaged block. A cursor reports it, but needs four times as long a row. The scan
        therefore reads, and the cursor checks that nothing follows.
        """
        with self._damage_marked():
            last = first
            rows: Iterable[tuple[bytes, bytes]] = self._db.items(from_key=first, read_opt=within)
            for last, value in rows:
                yield last, value
            cursor = self._db.iter(within)
            cursor.seek(last + b"\x00")
            cursor.status()

    @contextmanager
    def _damage_marked(self) -> Iterator[None]:
        """Mark the store when RocksDB reports damage, so that the next start does not open it again."""
        try:
            yield
        except Exception as cause:
            if "Corruption" in str(cause):
                (self.path / _DAMAGED).touch()
            raise StoreFailed(str(cause)) from cause

    def close(self) -> None:
        """Write the buffers and release the directory. Safe to repeat."""
        with suppress(DbClosedError):
            self._db.close()

    @staticmethod
    def destroy(path: Path) -> None:
        """Delete a closed store."""
        shutil.rmtree(path, ignore_errors=False)


def _bounded(prefix: bytes) -> ReadOptions:
    options = ReadOptions()
    options.set_iterate_upper_bound(bytes((prefix[0] + 1,)))
    return options


def _options(cache: Cache, buffers: WriteBufferManager) -> Options:
    """Return the options that all stores of a process share, with RocksDB's statistics, which have no measurable cost."""
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_manager(buffers)
    options.set_write_buffer_size(16 * 1024 * 1024)
    options.set_max_write_buffer_number(3)
    options.set_max_background_jobs(2)
    options.set_max_open_files(128)
    options.set_max_total_wal_size(64 * 1024 * 1024)
    options.set_keep_log_file_num(2)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_use_fsync(False)
    options.enable_statistics()
    blocks = BlockBasedOptions()
    blocks.set_block_cache(cache)
    blocks.set_bloom_filter(10, False)
    blocks.set_cache_index_and_filter_blocks(True)
    options.set_block_based_table_factory(blocks)
    return options
