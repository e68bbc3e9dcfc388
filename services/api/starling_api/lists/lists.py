"""Core: uploaded lists. Whoever is put on a list or taken off it is told of in the topic; the table says who is on it.

The table never lacks anybody whom the topic has on a list: a row is there before the record says so, and goes after the
record that says the contrary. So an upload that broke off is made whole by sending it again, whatever it got to.
"""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol

from starling_api.definitions.definition import Author
from starling_api.http.errors import AtWork
from starling_api.http.pagination import PageOf, cut
from starling_api.ports import NowMicros

CHUNK: Final = 5000
"""Users handled at once: what an upload needs of memory."""


class ListRow(NamedTuple):
    """One user on a list. `generation`: of the upload that said so last."""

    bucket: int
    user_id: str
    generation: int


class ListStore(Protocol):
    """Who is on which list. Every method may raise DatabaseUnavailable."""

    def put(self, workspace: str, key: str, users: Sequence[str], generation: int) -> None:
        """These are on it."""

    def drop(self, workspace: str, key: str, users: Sequence[str]) -> None:
        """These are not."""

    def rows(self, workspace: str, key: str, after: tuple[int, str], most: int) -> Sequence[ListRow]:
        """By bucket and user id."""

    def holding(self, workspace: str, keys: Sequence[str], user: str) -> list[str]:
        """Those of the lists that the user is on."""

    def reserve(self, workspace: str, key: str, owner: str) -> bool:
        """Whether the list is the owner's to write now; asked again by the owner it stays so for another minute."""

    def release(self, workspace: str, key: str, owner: str) -> None:
        """Others may write."""


class Told(NamedTuple):
    """Users who were put on a list or taken off it by one request."""

    workspace: str
    key: str
    users: Sequence[str]
    on_list: bool
    received_at_micros: int
    correlation_id: str


class Tell(Protocol):
    """Writes it to the topic; returns once the broker has all of it."""

    def __call__(self, told: Told) -> None:
        """Raises: BrokerUnavailable, RegistryUnavailable, SchemaMissing."""


@dataclass(frozen=True, slots=True)
class Lists:
    """What one can do with the users of a list. Each may raise the `…Unavailable` of a store and can then be repeated."""

    store: ListStore
    tell: Tell
    now_micros: NowMicros

    def add(self, author: Author, key: str, users: Iterable[str]) -> int:
        """Gives how many were sent. Raises: AtWork."""
        with self._alone(author, key) as writing:
            return sum(writing.put(chunk) for chunk in _chunks(users))

    def remove(self, author: Author, key: str, users: Iterable[str]) -> int:
        """Gives how many were sent. Raises: AtWork."""
        with self._alone(author, key) as writing:
            return sum(writing.drop(chunk) for chunk in _chunks(users))

    def replace(self, author: Author, key: str, users: Iterable[str]) -> int:
        """These and nobody else. Gives how many were sent. Raises: AtWork."""
        with self._alone(author, key) as writing:
            sent = sum(writing.put(chunk) for chunk in _chunks(users))
            for rows in writing.everybody():
                writing.drop([row.user_id for row in rows if row.generation != writing.generation])
            return sent

    def members(self, workspace: str, key: str, page: PageOf) -> tuple[list[dict[str, Any]], str | None]:
        """A page of those who are on it, and the cursor of the next one. Raises: BadRequest."""
        name = f"list {key}"
        bucket, user = page.after(name, (0, ""), bits=(32,))
        rows, cursor = cut(
            self.store.rows(workspace, key, (bucket, user), page.limit + 1), page.limit, name, lambda row: (row.bucket, row.user_id)
        )
        return [{"user_id": row.user_id} for row in rows], cursor

    @contextmanager
    def _alone(self, author: Author, key: str) -> Iterator["_Writing"]:
        writing = _Writing(self, author, key, self.now_micros(), str(uuid.uuid4()))
        writing.hold()
        try:
            yield writing
        finally:
            self.store.release(author.workspace, key, writing.owner)


@dataclass(frozen=True, slots=True)
class _Writing:
    """One request at work on one list."""

    lists: Lists
    author: Author
    key: str
    generation: int
    owner: str

    def hold(self) -> None:
        if not self.lists.store.reserve(self.author.workspace, self.key, self.owner):
            raise AtWork(f"{self.key!r} is being written by another request: try again when that is done")

    def put(self, users: Sequence[str]) -> int:
        self.hold()
        self.lists.store.put(self.author.workspace, self.key, users, self.generation)
        self._tell(users, on_list=True)
        return len(users)

    def drop(self, users: Sequence[str]) -> int:
        if users:
            self.hold()
            self._tell(users, on_list=False)
            self.lists.store.drop(self.author.workspace, self.key, users)
        return len(users)

    def everybody(self) -> Iterator[Sequence[ListRow]]:
        after = (0, "")
        while rows := self.lists.store.rows(self.author.workspace, self.key, after, CHUNK):
            yield rows
            after = (rows[-1].bucket, rows[-1].user_id)

    def _tell(self, users: Sequence[str], *, on_list: bool) -> None:
        author = self.author
        # Each chunk has its own time, so that its records take their place among what else is received meanwhile.
        now_micros = self.lists.now_micros()
        self.lists.tell(Told(author.workspace, self.key, users, on_list, now_micros, author.correlation_id))


def _chunks(users: Iterable[str]) -> Iterator[list[str]]:
    left = iter(users)
    while chunk := list(islice(left, CHUNK)):
        yield chunk
