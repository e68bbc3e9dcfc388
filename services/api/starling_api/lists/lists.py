"""Core: uploaded lists. The topic has one record for each added or removed user; the table has the current members.

A row is written before the record of an addition and deleted after the record of a removal. The table thus contains every member
according to the topic, and a repetition completes an interrupted upload.
"""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol

from starling_api.definitions.definition import Author
from starling_api.definitions.kinds.kinds import LISTS
from starling_api.http.errors import ResourceBusy
from starling_api.http.pagination import PageOf, cut
from starling_api.ports import DefinitionReader, NowMicros
from starling_common.cassandra.read_models import ARCHIVED

CHUNK: Final = 5000
"""Users of one chunk; it bounds the memory of an upload."""


class ListRow(NamedTuple):
    """One user on a list. `generation`: number of the last upload with this user."""

    bucket: int
    user_id: str
    generation: int


class ListStore(Protocol):
    """The members of lists. Every method may raise DatabaseUnavailable."""

    def put(self, workspace: str, key: str, users: Sequence[str], generation: int) -> None:
        """Add users."""

    def drop(self, workspace: str, key: str, users: Sequence[str]) -> None:
        """Remove users."""

    def rows(self, workspace: str, key: str, after: tuple[int, str], most: int) -> Sequence[ListRow]:
        """Return the members after (bucket, user id), in that order."""

    def holding(self, workspace: str, keys: Sequence[str], user: str) -> list[str]:
        """Return the keys of the lists with this user."""

    def reserve(self, workspace: str, key: str, owner: str) -> bool:
        """Reserve or renew the write lock of a list for a minute. Return whether `owner` has it."""

    def release(self, workspace: str, key: str, owner: str) -> None:
        """Release the write lock."""


class ListChange(NamedTuple):
    """Users that one request added to a list (`on_list`) or removed from it."""

    workspace: str
    key: str
    users: Sequence[str]
    on_list: bool
    received_at_micros: int
    correlation_id: str


class PublishListChange(Protocol):
    """Publishes one record for each user and waits for the acknowledgements."""

    def __call__(self, change: ListChange) -> None:
        """Raises: BrokerUnavailable, RegistryUnavailable, SchemaMissing."""


@dataclass(frozen=True, slots=True)
class Lists:
    """The operations on the members of lists. Each may raise the `…Unavailable` error of a store and can then be repeated."""

    store: ListStore
    publish: PublishListChange
    now_micros: NowMicros

    def add(self, author: Author, key: str, users: Iterable[str]) -> int:
        """Add users and return the number of ids in the request. Raises: ResourceBusy."""
        with self._locked(author, key) as writing:
            return sum(writing.put(chunk) for chunk in _chunks(users))

    def remove(self, author: Author, key: str, users: Iterable[str]) -> int:
        """Remove users and return the number of ids in the request. Raises: ResourceBusy."""
        with self._locked(author, key) as writing:
            return sum(writing.drop(chunk) for chunk in _chunks(users))

    def replace(self, author: Author, key: str, users: Iterable[str]) -> int:
        """Replace all members and return the number of ids in the request. Raises: ResourceBusy."""
        with self._locked(author, key) as writing:
            sent = sum(writing.put(chunk) for chunk in _chunks(users))
            for rows in writing.all_rows():
                writing.drop([row.user_id for row in rows if row.generation != writing.generation])
            return sent

    def members(self, workspace: str, key: str, page: PageOf) -> tuple[list[dict[str, Any]], str | None]:
        """Return a page of members and the cursor of the next one. Raises: BadRequest."""
        name = f"list {key}"
        bucket, user = page.after(name, (0, ""), bits=(32,))
        rows, cursor = cut(
            self.store.rows(workspace, key, (bucket, user), page.limit + 1), page.limit, name, lambda row: (row.bucket, row.user_id)
        )
        return [{"user_id": row.user_id} for row in rows], cursor

    @contextmanager
    def _locked(self, author: Author, key: str) -> Iterator["_Writing"]:
        writing = _Writing(self, author, key, self.now_micros(), str(uuid.uuid4()))
        writing.lock()
        try:
            yield writing
        finally:
            self.store.release(author.workspace, key, writing.owner)


@dataclass(frozen=True, slots=True)
class _Writing:
    """One request that writes one list."""

    lists: Lists
    author: Author
    key: str
    generation: int
    owner: str

    def lock(self) -> None:
        if not self.lists.store.reserve(self.author.workspace, self.key, self.owner):
            raise ResourceBusy(f"{self.key!r} is being written by another request: retry when that is done")

    def put(self, users: Sequence[str]) -> int:
        self.lock()
        self.lists.store.put(self.author.workspace, self.key, users, self.generation)
        self._publish(users, on_list=True)
        return len(users)

    def drop(self, users: Sequence[str]) -> int:
        if users:
            self.lock()
            self._publish(users, on_list=False)
            self.lists.store.drop(self.author.workspace, self.key, users)
        return len(users)

    def all_rows(self) -> Iterator[Sequence[ListRow]]:
        after = (0, "")
        while rows := self.lists.store.rows(self.author.workspace, self.key, after, CHUNK):
            yield rows
            after = (rows[-1].bucket, rows[-1].user_id)

    def _publish(self, users: Sequence[str], *, on_list: bool) -> None:
        author = self.author
        # Each chunk has its own time, which orders its records among concurrently received ones.
        now_micros = self.lists.now_micros()
        self.lists.publish(ListChange(author.workspace, self.key, users, on_list, now_micros, author.correlation_id))


def has_list(reader: DefinitionReader, workspace: str, key: str) -> bool:
    """Return whether there is a list, which is not deleted. Raises: DatabaseUnavailable."""
    found = reader.definition(workspace, LISTS.name, key)
    return found is not None and found.status != ARCHIVED


def _chunks(users: Iterable[str]) -> Iterator[list[str]]:
    remaining = iter(users)
    while chunk := list(islice(remaining, CHUNK)):
        yield chunk
