"""Adapter: the rows of databases and Iceberg tables as they were sent last, in pages in Cassandra.

A page has the rows whose ids begin with the same two bytes: 76 of a table of five million. One statement reads or writes it. A run
therefore has the rows of a table in the order of their ids, and one task all rows of a page.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec

from starling_common.cassandra.database import Database, Write
from starling_spark.jobs.imports.store import Place

BUCKETS: Final = 256
"""Partitions of Cassandra that the pages of one import are in, by the first byte of the ids."""
PAGE_BYTES: Final = 2
"""Bytes at the begin of an id that name its page."""
_PAGES_A_READ: Final = 64
_BATCH_BYTES: Final = 2**20
"""Most bytes of a batch of several pages. Cassandra takes mutations of 16 MiB."""
_READ: Final = "SELECT page, content FROM {ks}.import_row_pages WHERE workspace = ? AND key = ? AND bucket = ? AND page IN ?"
_WRITE: Final = "INSERT INTO {ks}.import_row_pages (workspace, key, bucket, page, content) VALUES (?, ?, ?, ?, ?)"
_BUCKET: Final = "SELECT content FROM {ks}.import_row_pages WHERE workspace = ? AND key = ? AND bucket = ?"
_ID_BYTES: Final = 16


class KnownRow(NamedTuple):
    """A row of a database or a table as it was sent last. `version`: the number of its changes; `sent`: it was acknowledged.

    `digest`: empty once the row is gone. `seen_at_ms`: the run that read the row last; `user_id`: the user, or the product of the
    catalog; `traits`: the names that were sent of it.
    """

    version: int
    digest: bytes
    sent: bool
    seen_at_ms: int | None = None
    user_id: str | None = None
    traits: Sequence[str] | None = None


Page: TypeAlias = dict[bytes, KnownRow]
"""The rows of a page by their ids."""


_StoredRow: TypeAlias = tuple[bytes, int, bytes, bool, int | None, str | None, int | None]
"""The id of a row, the fields of `KnownRow`, and for `traits` the index of their names in the page."""


class _Content(msgspec.Struct, array_like=True):
    """A stored page. `traits`: lists of names, each once, because most rows of a table have the same columns."""

    traits: list[list[str]]
    rows: list[_StoredRow]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Content).decode


class RowPages:
    """Reads and writes the rows of one import. The pages of the last call stay in memory, so each page may have one writer.

    Every method may raise DatabaseUnavailable.
    """

    def __init__(self, database: Database, place: Place) -> None:
        self._database = database
        self._place = place
        self._pages: dict[bytes, Page] = {}

    def known_rows(self, ids: Sequence[bytes]) -> list[KnownRow | None]:
        """Return the rows as they were sent last, in the order of their ids; None for a new one."""
        self._load({id_[:PAGE_BYTES] for id_ in ids})
        return [self._pages[id_[:PAGE_BYTES]].get(id_) for id_ in ids]

    def set_rows(self, rows: Sequence[tuple[bytes, KnownRow]]) -> None:
        """Store rows by their ids, each once."""
        names = {id_[:PAGE_BYTES] for id_, _ in rows}
        if not names <= self._pages.keys():
            self._load(names)
        for id_, row in rows:
            self._pages[id_[:PAGE_BYTES]][id_] = row
        self._database.write_batches(list(self._batches(names)))

    def rows_of_bucket(self, bucket: int) -> Iterator[tuple[bytes, KnownRow]]:
        """Yield the rows whose ids begin with a byte, page by page. Units: `bucket` from 0 to `BUCKETS` - 1."""
        for rows in self._database.pages(_BUCKET, (*self._place, bucket), _PAGES_A_READ):
            for row in rows:
                yield from decode_page(row["content"]).items()

    def _batches(self, names: set[bytes]) -> Iterator[list[Write]]:
        """Yield batches of one bucket each, which are one mutation."""
        batch: list[Write] = []
        size_bytes = 0
        for name in sorted(names):
            content = encode_page(self._pages[name])
            if batch and (batch[-1][1][2] != name[0] or size_bytes + len(content) > _BATCH_BYTES):
                yield batch
                batch, size_bytes = [], 0
            batch.append((_WRITE, (*self._place, name[0], name, content)))
            size_bytes += len(content)
        if batch:
            yield batch

    def _load(self, names: set[bytes]) -> None:
        """Keep these pages in memory, and no other ones."""
        pages = {name: self._pages[name] for name in names & self._pages.keys()}
        missing: dict[int, list[bytes]] = defaultdict(list)
        for name in names - pages.keys():
            missing[name[0]].append(name)
        for rows in self._database.read_each(_READ, [(*self._place, bucket, own) for bucket, own in missing.items()]):
            pages |= {row["page"]: decode_page(row["content"]) for row in rows}
        self._pages = {name: pages.get(name, {}) for name in names}


def row_id(key: str) -> bytes:
    """Return the id of a row of the id column's text."""
    return hashlib.blake2b(key.encode(errors="surrogatepass"), digest_size=_ID_BYTES).digest()


def encode_page(page: Page) -> bytes:
    """Return a page as MessagePack."""
    names: dict[tuple[str, ...], int] = {}
    rows: list[_StoredRow] = []
    for id_, row in page.items():
        traits = None if row.traits is None else names.setdefault(tuple(row.traits), len(names))
        rows.append((id_, row.version, row.digest, row.sent, row.seen_at_ms, row.user_id, traits))
    return _encode(_Content([list(one) for one in names], rows))


def decode_page(content: bytes) -> Page:
    """Return the page that `encode_page` has encoded."""
    found = _decode(content)
    return {
        id_: KnownRow(version, digest, sent, seen_at_ms, user_id, None if traits is None else found.traits[traits])
        for id_, version, digest, sent, seen_at_ms, user_id, traits in found.rows
    }
