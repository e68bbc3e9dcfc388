"""Pure core: compares the contents of a store with the changelog, which is the source of truth."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from starling_stream.model.backing_store import slot_of
from starling_stream.model.rows import row_due, row_version

Latest = Mapping[bytes, tuple[int, bytes]]
"""Key -> offset and row of its last record in the changelog."""

_NAMED: Final = 5
"""Violations that are listed; the others are counted."""


class ConsistencyCheck(NamedTuple):
    """The result for one store of one partition. `behind`: users changed after the store's position, whose rows may be older."""

    store: str
    partition: int
    users: int
    position: int | None
    log_end: int
    behind: int
    violations: int
    examples: tuple[str, ...]


class StoreContents(NamedTuple):
    """The contents of one store, read after its position and before the changelog.

    Every state before `position` must be present; None: states may be missing. `expects` returns whether a key must be present.
    `dues`: the (slot, key) of the due index; None for a store without one.
    """

    store: str
    partition: int
    position: int | None
    rows: Iterable[tuple[bytes, bytes]]
    expects: Callable[[bytes], bool] = lambda _: True
    dues: frozenset[tuple[int, bytes]] | None = None


def compare(contents: StoreContents, log: Latest, log_end: int) -> ConsistencyCheck:
    """Compare each row: it must be committed, no newer than the changelog's, and the changelog's own before the position."""
    violations: list[str] = []
    seen: set[bytes] = set()
    users = behind = 0
    for key, row in contents.rows:
        seen.add(key)
        users += len(row) > 8
        violation, is_behind = _check_row(key, row, log.get(key), contents.position)
        behind += is_behind
        if violation is not None:
            violations.append(violation)
        elif _is_missing_from_index(key, row, log.get(key), contents):
            violations.append(f"{key!r}: due, and not in the index: after a restore its timer would not fire")
    if contents.position is not None:
        for key, (offset, _) in log.items():
            if offset < contents.position and key not in seen and contents.expects(key):
                violations.append(f"{key!r}: missing, changed at offset {offset}")
    shown = tuple(violations[:_NAMED])
    return ConsistencyCheck(contents.store, contents.partition, users, contents.position, log_end, behind, len(violations), shown)


def _is_missing_from_index(key: bytes, row: bytes, known: tuple[int, bytes] | None, contents: StoreContents) -> bool:
    """Return whether the due index lacks the row's timer. Rows after the position may be indexed later."""
    slot = slot_of(row_due(row))
    if contents.dues is None or slot is None or known is None or contents.position is None or known[0] >= contents.position:
        return False
    return (slot, key) not in contents.dues


def _check_row(key: bytes, row: bytes, known: tuple[int, bytes] | None, position: int | None) -> tuple[str | None, bool]:
    """Return the violation of one row, if any, and whether the row is older than the changelog's."""
    if known is None:
        return f"{key!r}: version {row_version(row)}, and nothing in the changelog", False
    offset, latest = known
    if row == latest:
        return None, False
    mine, newest = row_version(row), row_version(latest)
    if mine > newest:
        return f"{key!r}: version {mine} is newer than the changelog's {newest}", False
    if mine == newest:
        return f"{key!r}: version {mine} is another one than the changelog's", False
    if position is not None and offset < position:
        return f"{key!r}: version {mine}, should be {newest} of offset {offset}, which lies before {position}", False
    return None, True
