"""Adapter: looks at a stage's states in all tiers, for operators. Reads beside the workers and changes nothing but `rebuild`."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from aiokafka.partitioner import murmur2

from starling_common.database import Database
from starling_common.instants import LATEST_MS, format_instant
from starling_common.settings import Cassandra
from starling_common.wire import Registry
from starling_stream.inspect.consistency import Held, Latest, Verdict, compare
from starling_stream.model.backing_store import Facts, Place, bucket_of
from starling_stream.model.rows import due_ms, row_due, row_version
from starling_stream.state.cassandra import CassandraBacking
from starling_stream.state.local_store import TaskStore, store_memory
from starling_stream.state.restore import changelog_records

_MEMORY_BYTES: Final = 32 * 1024 * 1024


Readable = Callable[[bytes], Any]
"""From the bytes of a state to what JSON can hold. Raises: ValueError or msgspec.DecodeError for what is no state."""


class NotKept(Exception):
    """There is nothing to look at; the message says why."""


class Source(NamedTuple):
    """Where the tiers are. `disks`: state directories of workers that can be reached from here."""

    brokers: str
    registry_url: str
    cassandra: Cassandra
    disks: Sequence[Path] = ()


class Audit:
    """One stage. Every method may block; raises BackingAway, KafkaException, RegistryUnavailable, SchemaMissing."""

    def __init__(self, stage: str, source: Source, readable: Readable | None = None) -> None:
        """`readable`: shows a state of the stage, where its bytes are more than MessagePack.

        Raises: NotKept when no worker of the stage ever kept states in Cassandra.
        """
        self.stage = stage
        self._readable = readable or _readable
        self._source = source
        self._database = Database(source.cassandra)
        found = CassandraBacking(self._database, 1).frozen(stage)
        if found is None:
            self._database.close()
            raise NotKept(f"no states of {stage} are kept in Cassandra: it has not run with it, or its facts were forgotten")
        self.facts: Facts = found
        self._changelog = f"{stage}-state-changelog"
        self._log = found.topics[self._changelog]
        self._backing = CassandraBacking(self._database, found.buckets)
        self._codec = Registry(source.registry_url).codec(self._changelog, "StateChanged")

    def close(self) -> None:
        """Close the session."""
        self._database.close()

    def latest(self, partition: int) -> tuple[Latest, int]:
        """The changelog folded: the last row of each key, and the end of it."""
        rows: dict[bytes, tuple[int, bytes]] = {}
        end = 0
        for offset, key, row in changelog_records(self._source.brokers, self._changelog, partition, self._decode):
            end = offset
            if key:
                rows[key] = (offset, row)
        return rows, end

    def verdicts(self, partition: int) -> list[Verdict]:
        """Cassandra's rows and those of each disk against the changelog."""
        held = [self._in_tier(partition), *self._on_disks(partition)]
        log, end = self.latest(partition)
        return [compare(one, log, end) for one in held]

    def user(self, key: bytes) -> dict[str, Any]:
        """One user's state in all tiers, as JSON can hold it."""
        partition = (murmur2(key) & 0x7FFFFFFF) % self.facts.partitions
        place, floor = self._place(partition)
        written = self._backing.written_at(place, key)
        log, end = self.latest(partition)
        last = log.get(key)
        found = {
            "changelog": None if last is None else {"offset": last[0], **self._shown(last[1])},
            "cassandra": None if written is None else {"written_at": written[1], **self._shown(written[0])},
            **{name: None if row is None else self._shown(row) for name, row in self._user_on_disks(partition, key)},
        }
        where = {"partition": partition, "bucket": bucket_of(key, self.facts.buckets), "floor": floor, "log_end": end}
        return {"stage": self.stage, "key": key.decode(), **where, "tiers": found}

    def rebuild(self, partition: int) -> int:
        """Begin a new incarnation: whoever holds the partition starts anew, from the changelog. Returns its number."""
        place, _ = self._place(partition)
        new = place._replace(incarnation=place.incarnation + 1)
        self._backing.begin(new)
        return new.incarnation

    def floor(self, partition: int) -> int | None:
        """How far the newest incarnation goes."""
        return self._place(partition)[1]

    def forget_facts(self) -> None:
        """The next start freezes what it finds."""
        self._backing.thaw(self.stage)

    def _place(self, partition: int) -> tuple[Place, int | None]:
        standing = self._backing.standing(self._log, partition)
        incarnation, floor = (0, None) if standing is None else (standing.incarnation, standing.floor)
        return Place(self._log, partition, incarnation), floor

    def _in_tier(self, partition: int) -> Held:
        place, floor = self._place(partition)
        # The index is read on both sides of the rows: what a worker moves meanwhile is in one of the two.
        dues = self._dues(place)
        pages = (self._backing.scan(place, bucket) for bucket in range(self.facts.buckets))
        rows = [row for bucket in pages for page in bucket for row in page]
        return Held("cassandra", partition, floor, rows, dues=dues | self._dues(place))

    def _dues(self, place: Place) -> frozenset[tuple[int, bytes]]:
        pages = (self._backing.dues(place, bucket) for bucket in range(self.facts.buckets))
        return frozenset(entry for bucket in pages for page in bucket for entry in page)

    def _on_disks(self, partition: int) -> Iterator[Held]:
        for name, store in self._stores(partition):
            yield Held(name, partition, store.position(), list(store.all_rows()), self._not_in(store.cold()))

    def _not_in(self, cold: frozenset[int]) -> Callable[[bytes], bool]:
        return lambda key: bucket_of(key, self.facts.buckets) not in cold

    def _user_on_disks(self, partition: int, key: bytes) -> Iterator[tuple[str, bytes | None]]:
        for name, store in self._stores(partition):
            yield name, store.rows([key])[0]

    def _stores(self, partition: int) -> Iterator[tuple[str, TaskStore]]:
        memory = store_memory(_MEMORY_BYTES, _MEMORY_BYTES)
        for disk in self._source.disks:
            path = disk / self.stage / str(partition)
            if not path.is_dir():
                continue
            store = TaskStore(path, memory, only_look=True)
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
            return _readable(payload)  # spoilt, or of a newer release: all the more reason to look at it


def _readable(payload: bytes) -> Any:
    """The state as text where it can be: services write MessagePack behind a version of their format; else hexadecimal."""
    for data in (payload, payload[1:]):
        try:
            return msgspec.to_builtins(msgspec.msgpack.decode(data), str_keys=True)
        except (msgspec.DecodeError, ValueError, TypeError):
            continue
    return payload.hex()
