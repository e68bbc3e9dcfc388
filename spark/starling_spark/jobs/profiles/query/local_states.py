"""Adapter: a copy of the users' states of a bucket, on the disk of the executor. It saves most reads from Spark's state server.

A read from the state server costs about ten times as much. The state remains that of Spark: it alone is restored, and a user who is
not in the copy is read from it. Each change gives the copy a new version, and the last version of a micro-batch is stored in
Spark's state too. A copy whose version differs from that in Spark's state is emptied; this happens after a failed task, and when
another executor has had the bucket. All Python workers of an executor share a copy, because Spark runs a bucket in any of them.
"""

import shutil
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

import lmdb

from starling_common.telemetry.logs import log
from starling_spark.jobs.profiles.query.bulk_states import BulkStates

_VERSION: Final = b"\0version"
"""The key of the version; the name of a user begins with a workspace."""
_MAX_KEY_BYTES: Final = 511
"""As LMDB allows."""
UNUSED_SECONDS: Final = 3_600
"""Each micro-batch changes the copies of all buckets, so a copy that has not changed for that time is seldom read again."""
_MEGABYTE: Final = 1 << 20


class LocalStates:
    """The copy of one bucket while a task has it; `close` it. Only one task writes, except when one is repeated too early.

    A failure of the disk, and a copy that is full, cost time and nothing else: the states are read from Spark's state.
    """

    def __init__(self, directory: Path, version: str, megabytes: int) -> None:
        """`version`: that of Spark's state, "" if it has none. `megabytes`: the most that the copy may have."""
        self._directory = directory
        self._version = version.encode()
        self._environment: lmdb.Environment | None = None
        try:
            if not directory.exists():
                directory.mkdir(parents=True, exist_ok=True)
                _remove_unused(directory.parent)
            # Nothing is flushed: after a crash of the machine the workers have another directory.
            self._environment = lmdb.open(
                str(directory), map_size=megabytes * _MEGABYTE, sync=False, readahead=False, max_spare_txns=0
            )
            self._environment.reader_check()
        except (lmdb.Error, OSError) as cause:
            self._give_up(cause)

    def read(self, users: Sequence[str]) -> list[bytes | None]:
        """Return the states of users; None if the copy has none, though Spark's state may have one."""
        if self._environment is not None:
            try:
                with self._environment.begin() as transaction:
                    if self._version and transaction.get(_VERSION) == self._version:
                        return [transaction.get(_key(user)) for user in users]
            except lmdb.Error as cause:
                self._give_up(cause)
        return [None] * len(users)

    def write(self, states: Mapping[str, bytes | None]) -> None:
        """Store states; None deletes one."""

        def put(transaction: lmdb.Transaction) -> None:
            # In the order of the keys the pages of the tree are changed once.
            for key, state in sorted((_key(user), state) for user, state in states.items()):
                if state is None:
                    transaction.delete(key)
                else:
                    transaction.put(key, state)

        self._change(put)

    def seal(self) -> str:
        """Return the version of the copy; "" without one."""
        self._change(lambda _: None)
        return "" if self._environment is None else self._version.decode()

    def close(self) -> None:
        """Close the files."""
        if self._environment is not None:
            self._environment.close()
            self._environment = None

    def _change(self, change: Callable[[lmdb.Transaction], None]) -> None:
        """Change the copy, and give it a new version."""
        if self._environment is None:
            return
        version = uuid.uuid4().hex.encode()
        try:
            with self._environment.begin(write=True) as transaction:
                if not self._version or transaction.get(_VERSION) != self._version:
                    transaction.drop(self._environment.open_db(None, transaction), delete=False)
                change(transaction)
                transaction.put(_VERSION, version)
        except (lmdb.Error, OSError) as cause:
            self._give_up(cause)
        else:
            self._version = version

    def _give_up(self, cause: Exception) -> None:
        """Remove the copy; the next task makes another one. A full one cannot be emptied: that needs free pages."""
        if isinstance(cause, lmdb.MapFullError):
            log(__name__).warning("local_states_full", cure="raise STARLING_PROFILES_COPY_MEGABYTES")
        else:
            log(__name__).warning("local_states_failed", reason=f"{type(cause).__name__}: {cause}")
        with suppress(lmdb.Error, OSError):
            self.close()
        self._environment = None
        shutil.rmtree(self._directory, ignore_errors=True)


class CopiedStates:
    """`BulkStates` of Spark behind a copy."""

    def __init__(self, states: BulkStates, copy: LocalStates) -> None:
        self._states = states
        self._copy = copy

    def read(self, keys: Sequence[str]) -> list[bytes | None]:
        """Return the value of each key; None without one."""
        found = self._copy.read(keys)
        missing = [number for number, state in enumerate(found) if state is None]
        for number, state in zip(missing, self._states.read([keys[number] for number in missing]), strict=True):
            found[number] = state
        return found

    def write(self, states: Mapping[str, bytes | None]) -> None:
        """Store the values; None deletes the entry."""
        self._states.write(states)
        self._copy.write(states)


def _remove_unused(parent: Path) -> None:
    """Remove the copies that no micro-batch has changed for long, as of buckets on other executors and of former queries."""
    before = time.time() - UNUSED_SECONDS
    for file in parent.glob("*/data.mdb"):
        with suppress(OSError):
            if file.stat().st_mtime < before:
                shutil.rmtree(file.parent)


def _key(user: str) -> bytes:
    encoded = user.encode()
    return encoded if len(encoded) <= _MAX_KEY_BYTES else b"\0" + sha256(encoded).digest()
