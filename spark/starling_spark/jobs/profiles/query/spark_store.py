"""Adapter: the state of a bucket in Spark's state variables, and the copy of its users' states."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

from starling_spark.jobs.profiles.fold.bucket import Clock
from starling_spark.jobs.profiles.fold.wheel import Slot
from starling_spark.jobs.profiles.query.bulk_states import bulk_states
from starling_spark.jobs.profiles.query.local_states import CopiedStates, LocalStates
from starling_spark.session.worker_files import worker_files


class SparkStore:
    """`Store` over Spark's state variables of the current key, within `opened`."""

    def __init__(self, handle: StatefulProcessorHandle, query: str, copy_megabytes: int) -> None:
        """`query`: a name, for the directory of its copies. `copy_megabytes`: the most that the copy of a bucket may have."""
        self._query = query
        self._copy_megabytes = copy_megabytes
        self._bucket = -1
        self._copy: LocalStates | None = None
        self._clock = handle.getValueState("clock", "state binary")
        self._states = handle.getMapState("users", "user string", "state binary")
        self._in_spark = self._users = bulk_states(self._states)
        self._slots = handle.getMapState("slots", "start long, exponent int", "users binary")
        self._lists = handle.getMapState("visits", "number int", "users binary")
        self._published = handle.getListState("published", "users binary")

    @contextmanager
    def opened(self, bucket: int) -> Iterator[None]:
        """Have the copy of a bucket, whose state variables are the current ones, while the block lasts."""
        self._bucket = bucket
        try:
            yield
        finally:
            if self._copy is not None:
                self._copy.close()
            self._copy, self._users = None, self._in_spark

    def clock(self) -> Clock:
        """Return the bucket's clock; a new one at first."""
        found = self._clock.get()
        clock = Clock() if found is None else msgspec.msgpack.decode(bytes(found[0]), type=Clock)
        if self._copy_megabytes and (directory := worker_files()) is not None:
            self._copy = LocalStates(directory / f"{self._query}-{self._bucket}", clock.copy, self._copy_megabytes)
            self._users = CopiedStates(self._in_spark, self._copy)
        return clock

    def put_clock(self, clock: Clock) -> None:
        """Store the clock, with the version of the copy."""
        clock.copy = "" if self._copy is None else self._copy.seal()
        self._clock.update((msgspec.msgpack.encode(clock),))

    def read_users(self, users: Sequence[str]) -> list[bytes | None]:
        """Return the users' states; None when there is none."""
        return self._users.read(users)

    def put_users(self, states: Mapping[str, bytes | None]) -> None:
        """Store users' states; None deletes one."""
        self._users.write(states)

    def slot(self, slot: Slot) -> list[str]:
        """Return the users of a slot."""
        found = self._slots.getValue(tuple(slot))
        return [] if found is None else msgspec.msgpack.decode(bytes(found[0]), type=list[str])

    def put_slot(self, slot: Slot, users: list[str]) -> None:
        """Store the users of a slot; an empty list deletes the slot."""
        if users:
            self._slots.updateValue(tuple(slot), (msgspec.msgpack.encode(users),))
        elif self._slots.containsKey(tuple(slot)):
            self._slots.removeKey(tuple(slot))

    def names(self) -> list[str]:
        """Return all users with a state."""
        return [name for (name,) in self._states.keys()]  # noqa: SIM118 - no mapping

    def put_list(self, number: int, users: list[str]) -> None:
        """Store a list of users."""
        self._lists.updateValue((number,), (msgspec.msgpack.encode(users),))

    def take_list(self, number: int) -> list[str]:
        """Return and delete a list of users."""
        found = self._lists.getValue((number,))
        if found is None:
            return []
        self._lists.removeKey((number,))
        return msgspec.msgpack.decode(bytes(found[0]), type=list[str])

    def put_published(self, users: bytes) -> None:
        """Add a pack of users with values that earlier queries published."""
        self._published.appendValue((bytes(users),))

    def take_published(self) -> Iterator[str]:
        """Return and delete the users with values that earlier queries published."""
        for (users,) in self._published.get():
            yield from msgspec.msgpack.decode(bytes(users), type=list[str])
        self._published.clear()
