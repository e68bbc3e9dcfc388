"""Core: which rows of a database are sent, and with which message ids."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from starling_common.values import deterministic_id
from starling_spark.jobs.imports.file_import import Sent
from starling_spark.jobs.imports.jdbc import cursor_text, greatest
from starling_spark.jobs.imports.rows import ImportedRow, RejectedRow, RowMapper
from starling_spark.jobs.imports.sending import encoded
from starling_spark.jobs.imports.store import KnownRow, Place

_HASH_BYTES: Final = 16


class KnownRows(Protocol):
    """The rows of an import as they were sent last."""

    def known_rows(self, place: Place, ids: Sequence[bytes]) -> list[KnownRow | None]:
        """Return the rows by their ids, in order; None for a new one."""

    def set_rows(self, place: Place, rows: Sequence[tuple[bytes, KnownRow]]) -> None:
        """Store rows by their ids."""


class ChangedRows:
    """Sends the rows that are new or differ from what was sent last.

    A change is stored before it is sent, with the number of the row's changes, from which its message id follows. So a run that was
    killed sends it again with the same id, and a value that returns later has another id.
    """

    def __init__(
        self, known: KnownRows, place: Place, send: Callable[[Sequence[ImportedRow], Sequence[bytes]], list[RejectedRow]]
    ) -> None:
        self._known = known
        self._place = place
        self._send = send

    def send(self, rows: Sequence[ImportedRow], items: Sequence[bytes]) -> Sent:
        """Send a batch. Raises: what the sender and the store raise."""
        ids = [_hash(str(row.key).encode()) for row in rows]
        changed: list[tuple[ImportedRow, bytes, KnownRow]] = []
        for row, item, id_, before in zip(rows, items, ids, self._known.known_rows(self._place, ids), strict=True):
            digest = _hash(item)
            if before is None or before.digest != digest:
                after = KnownRow(1 if before is None else before.version + 1, digest, sent=False)
            elif before.sent:
                continue
            else:
                after = before
            message_id = deterministic_id("import", *self._place, "row", row.key, after.version)
            changed.append((row._replace(item={**row.item, "messageId": message_id}), id_, after))
        if not changed:
            return Sent(unchanged=len(rows))
        self._known.set_rows(self._place, [(id_, after) for _, id_, after in changed])
        to_send = [row for row, _, _ in changed]
        rejected = self._send(to_send, [encoded(row) for row in to_send])
        # A rejected row is tried again in the next run.
        numbers = {row.row for row in rejected}
        done = [(id_, after._replace(sent=True)) for row, id_, after in changed if row.number not in numbers]
        self._known.set_rows(self._place, done)
        return Sent(rejected, len(rows) - len(changed))


class CursorMapper:
    """Maps rows whose message ids follow from the id and the cursor of the row. `greatest`: of the rows so far."""

    def __init__(self, inner: RowMapper, place: Place, column: str) -> None:
        self.greatest: str | None = None
        self._inner = inner
        self._place = place
        self._column = column

    @property
    def id_column(self) -> str | None:
        """Return the column that identifies a row."""
        return self._inner.id_column

    def map(self, number: int, values: Mapping[str, Any]) -> ImportedRow | RejectedRow:
        """Return the item of a row."""
        value = values.get(self._column)
        if value is None:
            cure = "give each row one; until then the row is read and rejected in every run"
            return RejectedRow(number, self._column, "missing_cursor", "the cursor is null", cure)
        position = cursor_text(value)
        self.greatest = greatest(one for one in (self.greatest, position) if one is not None)
        row = self._inner.map(number, values)
        if isinstance(row, RejectedRow):
            return row
        message_id = deterministic_id("import", *self._place, "cursor", row.key, position)
        return row._replace(item={**row.item, "messageId": message_id})


def _hash(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_HASH_BYTES).digest()
