"""Pure core: do the tiers tell the same story? What a tier holds is compared with the changelog, which is the truth."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from starling_stream.model.backing_store import slot_of
from starling_stream.model.rows import row_due, row_version

Latest = Mapping[bytes, tuple[int, bytes]]
"""Key -> offset and row of its last record in the changelog."""

_NAMED: Final = 5
"""Faults that are told whole; the rest is counted."""


class Verdict(NamedTuple):
    """One tier of one partition. `behind`: users whom the log after the position changed, who are older here, as they may be."""

    tier: str
    partition: int
    users: int
    position: int | None
    log_end: int
    behind: int
    faults: int
    examples: tuple[str, ...]


class Held(NamedTuple):
    """What a tier holds. It was read after its position and before the changelog.

    Every state before `position` must be there; None: not all are, nor must be. `expects` says of a key whether it must be there.
    `dues`: (slot, key) of those that are found again by when they are due; None where rows are looked through for that.
    """

    tier: str
    partition: int
    position: int | None
    rows: Iterable[tuple[bytes, bytes]]
    expects: Callable[[bytes], bool] = lambda _: True
    dues: frozenset[tuple[int, bytes]] | None = None


def compare(held: Held, log: Latest, log_end: int) -> Verdict:
    """A row must be one that was committed, no newer than the log's, and the log's own if that lies before the position."""
    faults: list[str] = []
    seen: set[bytes] = set()
    users = behind = 0
    for key, row in held.rows:
        seen.add(key)
        users += len(row) > 8
        fault, is_behind = _judge(key, row, log.get(key), held.position)
        behind += is_behind
        if fault is not None:
            faults.append(fault)
        elif _is_not_found(key, row, log.get(key), held):
            faults.append(f"{key!r}: due, and not in the index: after a restore its timer would not fire")
    if held.position is not None:
        for key, (offset, _) in log.items():
            if offset < held.position and key not in seen and held.expects(key):
                faults.append(f"{key!r}: missing, changed at offset {offset}")
    shown = tuple(faults[:_NAMED])
    return Verdict(held.tier, held.partition, users, held.position, log_end, behind, len(faults), shown)


def _is_not_found(key: bytes, row: bytes, known: tuple[int, bytes] | None, held: Held) -> bool:
    """Whether it waits for an instant at which nobody would look for it. What lies after the position may still be on its way."""
    slot = slot_of(row_due(row))
    if held.dues is None or slot is None or known is None or held.position is None or known[0] >= held.position:
        return False
    return (slot, key) not in held.dues


def _judge(key: bytes, row: bytes, known: tuple[int, bytes] | None, position: int | None) -> tuple[str | None, bool]:
    """What is wrong with one row, and whether it is older than the log's."""
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
