"""Core: one file of an import, or one task of a database: read, map, send, and store the progress after each batch."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from starling_rules.imports import ImportRequest
from starling_spark.jobs.imports.rows import ImportedRow, RejectedRow, UnusableFile
from starling_spark.jobs.imports.sending import BATCH_BYTES, encoded, request_size
from starling_spark.jobs.imports.store import Progress

MAX_KEYS: Final = 2_000_000
"""Most ids that are compared within one file, by 8 bytes of hash. The normalizer drops later repetitions of a user.

The rows of a table in the mode `full` are in the order of their ids, so each is compared with the one before it.
"""
CHANGES_ROWS: Final = 5_000
"""Rows that are compared with what was sent of them. About twenty are in one bucket, which is read by one statement."""
CHANGES_BYTES: Final = 4 * 2**20


class Sent(NamedTuple):
    """The rejected rows of a batch, and the number of rows that were not sent, because they are unchanged."""

    rejected: Sequence[RejectedRow] = ()
    unchanged: int = 0


class Mapper(Protocol):
    """Maps the rows of one file."""

    @property
    def id_column(self) -> str | None:
        """Return the column that identifies a row."""

    def map(self, number: int, values: Mapping[str, Any]) -> ImportedRow | RejectedRow:
        """Return the item of a row, with a message id that is the same for each run."""


class Log(Protocol):
    """Stores the results of one file."""

    def is_running(self) -> bool:
        """Return whether the import has not been cancelled."""

    def add_rejects(self, rows: Sequence[RejectedRow]) -> None:
        """Store rejected rows. A repetition replaces them."""

    def set_progress(self, progress: Progress) -> None:
        """Store the progress."""


@dataclass
class _Batch:
    rows: list[ImportedRow] = field(default_factory=list)
    items: list[bytes] = field(default_factory=list)
    rejected: list[RejectedRow] = field(default_factory=list)
    size_bytes: int = 0

    def add(self, row: ImportedRow | RejectedRow, item: bytes) -> None:
        if isinstance(row, ImportedRow) and len(item) > BATCH_BYTES:
            row = RejectedRow(row.number, "", "item_too_large", f"the row has {len(item)} bytes as an item", "import fewer columns")
        if isinstance(row, RejectedRow):
            self.rejected.append(row)
        else:
            self.rows.append(row)
            self.items.append(item)
            self.size_bytes += len(item) + 1

    def count(self) -> int:
        return len(self.rows) + len(self.rejected)


Rows = Callable[[int], Iterator[tuple[int, dict[str, object]] | RejectedRow]]
"""Returns the rows after the first ones, whose number is given."""


def import_file(
    request: ImportRequest,
    mapper: Mapper,
    rows: Rows,
    send: Callable[[Sequence[ImportedRow], Sequence[bytes]], Sent],
    log: Log,
    progress: Progress,
) -> Progress:
    """Import the rest of a file and return its progress. It ends early when cancelled, and beyond `max_rejects` rejected rows.

    A batch is repeated after a kill between its acknowledgement and its progress; its message ids are the same then.
    Raises: what `rows`, `send` and `log` raise, except UnusableFile, which is the message of the file.
    """
    seen = _Keys(1 if _is_in_order(request) else MAX_KEYS)
    done = progress.rows_done
    # The ids of the rows that were sent before a kill are needed to find their repetitions.
    found = rows(0 if request.id_column is not None else done)
    try:
        for batch, sent in _sent(_batches(_mapped(found, mapper, seen), done, *_most(request)), send, log.is_running):
            if sent is None:
                return progress
            rejected = [*batch.rejected, *sent.rejected]
            log.add_rejects(rejected)
            progress = progress._replace(
                rows_done=progress.rows_done + batch.count(),
                accepted=progress.accepted + batch.count() - len(rejected) - sent.unchanged,
                rejected=progress.rejected + len(rejected),
            )
            _check_rejects(progress, request.max_rejects)
            log.set_progress(progress)
        progress = progress._replace(complete=True, message=None)
    except UnusableFile as error:
        progress = progress._replace(complete=True, message=str(error)[:1000])
    log.set_progress(progress)
    return progress


def _sent(
    batches: Iterator[_Batch], send: Callable[[Sequence[ImportedRow], Sequence[bytes]], Sent], is_running: Callable[[], bool]
) -> Iterator[tuple[_Batch, Sent | None]]:
    """Yield each batch with what became of it, None once the import is cancelled. While a batch is sent, the next one is read."""
    before: tuple[_Batch, Future[Sent]] | None = None
    with ThreadPoolExecutor(1) as sender:
        while True:
            failure: Exception | None = None
            batch: _Batch | None = None
            try:
                batch = next(batches, None)
            except Exception as error:  # noqa: BLE001 - raised once the batch before is completed
                failure = error
            if before is not None:
                yield before[0], before[1].result()
            if failure is not None:
                raise failure
            if batch is None:
                return
            if not is_running():
                yield batch, None
                return
            before = batch, sender.submit(_send, batch, send)


def _send(batch: _Batch, send: Callable[[Sequence[ImportedRow], Sequence[bytes]], Sent]) -> Sent:
    return send(batch.rows, batch.items) if batch.rows else Sent()


def _check_rejects(progress: Progress, most: int) -> None:
    if progress.rejected > most:
        raise UnusableFile(f"stopped after {progress.rejected} rejected rows, over max_rejects {most}: correct the rows")


def _mapped(
    found: Iterator[tuple[int, dict[str, object]] | RejectedRow], mapper: Mapper, seen: "_Keys"
) -> Iterator[ImportedRow | RejectedRow]:
    for one in found:
        row = one if isinstance(one, RejectedRow) else mapper.map(*one)
        if isinstance(row, ImportedRow) and row.key is not None and not seen.add(row.key):
            reason = f"the id {row.key[:60]!r} occurs before"
            row = RejectedRow(row.number, mapper.id_column or "", "duplicate_key", reason, "give each row its own id")
        yield row


class _Keys:
    """The ids of rows, at most so many; with one, the last id."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._last: str | None = None
        self._found: set[bytes] = set()

    def add(self, key: str) -> bool:
        """Add an id. Return False if it is known."""
        if key == self._last:
            return False
        self._last = key
        if self._most == 1:
            return True
        hashed = hashlib.blake2b(key.encode(), digest_size=8).digest()
        if hashed in self._found:
            return False
        if len(self._found) < self._most:
            self._found.add(hashed)
        return True


def _is_in_order(request: ImportRequest) -> bool:
    return request.source is not None and request.source.mode == "full"


def _most(request: ImportRequest) -> tuple[int, int]:
    """Return the most rows and bytes of a batch."""
    if _is_in_order(request):
        return CHANGES_ROWS, CHANGES_BYTES
    size = request_size(request)
    return size.rows, size.size_bytes


def _batches(rows: Iterator[ImportedRow | RejectedRow], done: int, most_rows: int, most_bytes: int) -> Iterator[_Batch]:
    batch, damage = _Batch(), None
    while True:
        try:
            row = next(rows, None)
        except UnusableFile as error:  # the rows before the damage are imported
            row, damage = None, error
        if row is None:
            break
        if _number(row) <= done:
            continue
        item = b"" if isinstance(row, RejectedRow) else encoded(row)
        if batch.rows and batch.size_bytes + len(item) > most_bytes:
            yield batch
            batch = _Batch()
        batch.add(row, item)
        if batch.count() >= most_rows:
            yield batch
            batch = _Batch()
    if batch.count():
        yield batch
    if damage is not None:
        raise damage


def _number(row: ImportedRow | RejectedRow) -> int:
    return row.number if isinstance(row, ImportedRow) else row.row
