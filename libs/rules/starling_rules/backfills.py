"""Pure core: the result of a finished backfill, as in the definitions topic, and the leaf nodes that a switch takes from it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from starling_common.outcome import Done, Outcome, Refused
from starling_common.wire import Record
from starling_segments import UserState

EVERYWHERE: Final = "*"
"""The workspace of a run, which covers all workspaces. No workspace has this name."""

MAX_BACKFILLS: Final = 16
"""Most finished runs in the definitions. The topic retains their states for days, and a partition is rarely further behind."""


class Part(msgspec.Struct, frozen=True):
    """One partition of a run. `inputs`: topic -> end offset of the history that was folded; `stream_time_ms`: at that end.

    `segments.backfill-states` contains its states, `users` of them, from offset `first` up to and without `end`.
    """

    inputs: dict[str, int]
    stream_time_ms: int
    first: int
    end: int
    users: int


class Backfill(msgspec.Struct, frozen=True):
    """A finished run. `definitions`: `workspace/key` -> version; `leaves`: workspace -> identities; `parts`: by partition."""

    run: str
    definitions: dict[str, int]
    leaves: dict[str, list[str]]
    parts: dict[int, Part]


class Stored(NamedTuple):
    """One `StateBackfilled`."""

    run: str
    state: bytes


class Source(NamedTuple):
    """The source of the history of some leaf nodes: a backfill and the records after it; None: all records."""

    backfill: Backfill | None
    leaves: Mapping[bytes, frozenset[str]]


_decoder = msgspec.json.Decoder(Backfill)


def to_json(backfill: Backfill) -> str:
    """Return the document of a `DefinitionChanged`."""
    return msgspec.json.encode(backfill).decode()


def read_backfill(record: Record) -> Outcome[Backfill]:
    """Return the backfill of a `DefinitionChanged`."""
    try:
        return Done(_decoder.decode(record["document"]))
    except msgspec.MsgspecError as error:
        return Refused("bad_backfill", f"{record['key']}: {error}")


def sources(fresh: Mapping[bytes, frozenset[str]], backfills: Sequence[Backfill], partition: int) -> Iterator[Source]:
    """Yield each fresh leaf node once: with the newest backfill that contains it for the partition, then those without one."""
    left = dict(fresh)
    for backfill in reversed(backfills):
        if partition not in backfill.parts:
            continue
        filled = {name.encode(): frozenset(leaves) for name, leaves in backfill.leaves.items()}
        served = {workspace: leaves & filled.get(workspace, frozenset()) for workspace, leaves in left.items()}
        served = {workspace: leaves for workspace, leaves in served.items() if leaves}
        if served:
            yield Source(backfill, served)
            left = {workspace: leaves - served.get(workspace, frozenset()) for workspace, leaves in left.items()}
    left = {workspace: leaves for workspace, leaves in left.items() if leaves}
    if left:
        yield Source(None, left)


def states_of(run: str, records: Iterable[tuple[bytes, Stored]]) -> dict[bytes, bytes]:
    """Return key -> state of that run. A repeated task has written its states twice: the last one counts."""
    return {key: stored.state for key, stored in records if stored.run == run}


def narrowed(state: UserState, leaves: frozenset[str]) -> UserState:
    """Remove everything but those leaf nodes from the state; return it."""
    state.accumulators.restrict(leaves)
    state.waiting = [match for match in state.waiting if match.leaf in leaves]
    state.due.restrict(leaves)
    return state


def joined(pasts: Iterable[dict[bytes, UserState]]) -> dict[bytes, UserState]:
    """Merge the histories of different leaf nodes into one; the arguments change."""
    whole: dict[bytes, UserState] = {}
    for past in pasts:
        if not whole:
            whole = past
            continue
        for key, state in past.items():
            known = whole.setdefault(key, state)
            if known is not state:
                known.accumulators.take_over(state.accumulators)
                known.waiting = [*known.waiting, *state.waiting]
    return whole
