"""Core: which rows of a database or an Iceberg table are sent, and with which message ids, and which of its rows are gone."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

from starling_common.values import deterministic_id
from starling_spark.jobs.imports.file_import import Sent
from starling_spark.jobs.imports.pages import KnownRow, row_id
from starling_spark.jobs.imports.rows import ImportedRow, RejectedRow, RowMapper
from starling_spark.jobs.imports.sending import RequestSize, TargetRefused, TargetUnavailable, encoded, with_message_id
from starling_spark.jobs.imports.sources.jdbc import cursor_text, greatest
from starling_spark.jobs.imports.store import Place

_DIGEST_BYTES: Final = 16
_SIZE: Final = RequestSize()
GONE: Final = b""
"""The digest of a row that is gone. Every row differs from it."""
Send: TypeAlias = Callable[[Sequence[ImportedRow], Sequence[bytes]], list[RejectedRow]]
"""Sends rows and their items; returns the rejected ones."""


class KnownRows(Protocol):
    """The rows of an import as they were sent last."""

    def known_rows(self, ids: Sequence[bytes]) -> list[KnownRow | None]:
        """Return the rows by their ids, in order; None for a new one."""

    def set_rows(self, rows: Sequence[tuple[bytes, KnownRow]]) -> None:
        """Store rows by their ids."""


class _Change(NamedTuple):
    """A row to send, with its item. `sent`: what is stored once it is acknowledged."""

    row: ImportedRow
    item: bytes
    id_: bytes
    sent: KnownRow


class _ChangeSender:
    """Sends changes by requests, and stores which are acknowledged. `size`: the most of one request."""

    def __init__(self, known: KnownRows, send: Send, size: RequestSize) -> None:
        self._known = known
        self._send = send
        self._size = size

    def send(self, changes: Sequence[_Change]) -> list[RejectedRow]:
        """Return the rejected rows. Those that were acknowledged although another request fails are stored."""
        rejected: list[RejectedRow] = []
        done: dict[bytes, KnownRow] = {}
        failed: TargetRefused | TargetUnavailable | None = None
        try:
            with ThreadPoolExecutor(self._size.at_once) as pool:
                parts = list(self._requests(changes))
                answers = [pool.submit(self._send, [one.row for one in part], [one.item for one in part]) for part in parts]
                for part, answer in zip(parts, answers, strict=True):
                    try:
                        refused = answer.result()
                    except CancelledError:
                        continue
                    except (TargetRefused, TargetUnavailable) as error:
                        failed = failed or error
                        for one in answers:
                            one.cancel()  # those that have not begun
                        continue
                    rejected += refused
                    # A rejected row is tried again in the next run.
                    numbers = {row.row for row in refused}
                    done |= {one.id_: one.sent for one in part if one.row.number not in numbers}
        finally:
            self._known.set_rows(list(done.items()))
        if failed is not None:
            raise failed
        return rejected

    def _requests(self, changes: Sequence[_Change]) -> Iterator[list[_Change]]:
        part: list[_Change] = []
        size_bytes = 0
        for one in changes:
            if part and (len(part) == self._size.rows or size_bytes + len(one.item) > self._size.size_bytes):
                yield part
                part, size_bytes = [], 0
            part.append(one)
            size_bytes += len(one.item) + 1
        if part:
            yield part


class ChangedRows:
    """Sends the rows that are new or differ from what was sent last.

    A change is stored before it is sent, with the number of the row's changes, from which its message id follows. So a run that was
    killed sends it again with the same id, and a value that returns later has another id.
    """

    def __init__(
        self, known: KnownRows, place: Place, send: Send, seen_at_ms: int | None = None, size: RequestSize = _SIZE
    ) -> None:
        """`seen_at_ms`: the run, if rows that are gone have an effect; `size`: of a request of `send`."""
        self._known = known
        self._place = place
        self._changes = _ChangeSender(known, send, size)
        self._seen_at_ms = seen_at_ms
        self._sorted: dict[tuple[str, ...], list[str]] = {}
        """The names of traits in the order of a row -> sorted. Most rows of a table have the same ones."""

    def send(self, rows: Sequence[ImportedRow], items: Sequence[bytes]) -> Sent:
        """Send a batch of any size. Shape: `items` without message ids.

        Raises: what the sender and the store raise; what was acknowledged before is stored then.
        """
        ids = [row_id(str(row.key)) for row in rows]
        known = dict(zip(ids, self._known.known_rows(ids), strict=True))
        stored: dict[bytes, KnownRow] = {}
        changed: list[_Change] = []
        for row, item, id_ in zip(rows, items, ids, strict=True):
            before = known[id_]
            after = self._after(row, _digest(item), before)
            if after != before:
                stored[id_] = known[id_] = after
            if not after.sent:
                message_id = deterministic_id("import", *self._place, "change", row.key, after.version)
                made = ImportedRow(row.number, {**row.item, "messageId": message_id}, row.key)
                changed.append(_Change(made, with_message_id(item, message_id), id_, after._replace(sent=True)))
        self._known.set_rows(list(stored.items()))
        return Sent(self._changes.send(changed), len(rows) - len(changed))

    def keep(self, rejected: Sequence[RejectedRow]) -> None:
        """Mark rows that were read and rejected as present: a value that cannot be imported is no deletion."""
        ids = [row_id(row.key) for row in rejected if row.key is not None]
        found = zip(ids, self._known.known_rows(ids), strict=True)
        present = [(id_, known) for id_, known in found if known is not None and known.digest != GONE]
        self._known.set_rows([(id_, known._replace(seen_at_ms=self._seen_at_ms)) for id_, known in present])

    def _after(self, row: ImportedRow, digest: bytes, before: KnownRow | None) -> KnownRow:
        if before is None or before.digest != digest:
            after = KnownRow(1 if before is None else before.version + 1, digest, sent=False)
        else:
            after = before
        if self._seen_at_ms is None:
            return after
        names, known = tuple(row.item.get("traits", ())), before.traits if before is not None else None
        traits = self._sorted.get(names)
        if traits is None:
            traits = self._sorted[names] = sorted(names)
        if known and known != traits:
            # A trait whose value is null now is still one of the row.
            traits = sorted({*names, *known})
        subject = row.item.get("userId") or row.item["productId"]
        return KnownRow(after.version, after.digest, after.sent, self._seen_at_ms, subject, traits)


class GoneRows:
    """Sets the traits of rows that are gone to null, or removes their users from the list or products from the catalog, once.

    A row is stored as gone before the call is sent, and its user and the names of its traits are forgotten after it.
    """

    def __init__(self, known: KnownRows, place: Place, send: Send, size: RequestSize = _SIZE) -> None:
        """`size`: of a request of `send`."""
        self._known = known
        self._place = place
        self._changes = _ChangeSender(known, send, size)

    def send(self, rows: Sequence[ImportedRow], _items: Sequence[bytes]) -> Sent:
        """Send a batch of `gone_row`. Raises: what the sender and the store raise."""
        ids = [bytes.fromhex(str(row.key)) for row in rows]
        gone: list[_Change] = []
        stored: list[tuple[bytes, KnownRow]] = []
        for row, id_, before in zip(rows, ids, self._known.known_rows(ids), strict=True):
            if before is not None:
                version = before.version if before.digest == GONE else before.version + 1
                message_id = deterministic_id("import", *self._place, "gone", row.key, version)
                made = row._replace(item={**row.item, "messageId": message_id})
                stored.append((id_, before._replace(version=version, digest=GONE, sent=False)))
                # The version stays, so that a row that returns has a message id of its own.
                gone.append(_Change(made, encoded(made), id_, KnownRow(version, GONE, sent=True)))
        self._known.set_rows(stored)
        to_send = [one for one in gone if one.row.item.get("traits") != {}]
        rejected = self._changes.send(to_send)
        self._known.set_rows([(one.id_, one.sent) for one in gone if one.row.item.get("traits") == {}])
        return Sent(rejected, len(rows) - len(to_send))


def presence_of(row: KnownRow, seen_at_ms: int) -> Literal["present", "gone", "forgotten"]:
    """Return whether a run has read a row. `forgotten`: its traits have been set to null, or it was never sent with them."""
    if row.digest != GONE and row.seen_at_ms == seen_at_ms:
        return "present"
    return "forgotten" if row.user_id is None else "gone"


def gone_rows(rows: Sequence[tuple[bytes, KnownRow]], seen_at_ms: int) -> Iterator[tuple[bytes, str, list[str]]]:
    """Yield the id, the user and the traits of the rows of one user that are gone, without traits of the user's other rows."""
    present = {name for _, row in rows if presence_of(row, seen_at_ms) == "present" for name in row.traits or ()}
    for id_, row in rows:
        if row.user_id is not None and presence_of(row, seen_at_ms) == "gone":
            yield id_, row.user_id, [name for name in row.traits or () if name not in present]


class GoneMapper:
    """Maps rows that are gone, by their ids, users and the names of their traits. `kind`: of the import."""

    id_column: str | None = None

    def __init__(self, kind: str = "traits") -> None:
        self._kind = kind

    def map(self, number: int, values: Mapping[str, Any]) -> ImportedRow:
        """Return the call that sets the traits to null, the user who is no member of the list, or the id without a product."""
        item: dict[str, Any] = {"userId": values["user"], "onList": False}
        if self._kind == "traits":
            item = {"type": "identify", "userId": values["user"], "traits": dict.fromkeys(values["traits"])}
        elif self._kind == "catalog":
            item = {"productId": values["user"], "product": None}
        return ImportedRow(number, item, values["id"].hex())


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


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()
