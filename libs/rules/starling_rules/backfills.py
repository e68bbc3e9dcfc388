"""Pure core: what a finished backfill left, as the definitions topic tells it, and which leaves of a switch it serves."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from starling_common.outcome import Done, Outcome, Refused
from starling_common.wire import Record
from starling_segments import UserState

EVERYWHERE: Final = "*"
"""Its workspace: a run is for all of them. Never the name of one."""

REMEMBERED: Final = 16
"""Runs whose states may still be there: the topic keeps them for days, and a partition is rarely so far behind."""


class Part(msgspec.Struct, frozen=True):
    """One partition's share. `inputs`: topic -> offset up to which its past is in, without it; `stream_time_ms`: then.

    Its states are those of the run in `segments.backfill-states` from offset `first` up to and without `end`: `users` of them.
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
    """Where the past of some leaves comes from: a backfill, and what came after it; None: all of it is to be read."""

    backfill: Backfill | None
    leaves: Mapping[bytes, frozenset[str]]


_decoder = msgspec.json.Decoder(Backfill)


def to_json(backfill: Backfill) -> str:
    """As the document of a `DefinitionChanged`."""
    return msgspec.json.encode(backfill).decode()


def read_backfill(record: Record) -> Outcome[Backfill]:
    """The inverse."""
    try:
        return Done(_decoder.decode(record["document"]))
    except msgspec.MsgspecError as error:
        return Refused("bad_backfill", f"{record['key']}: {error}")


def sources(fresh: Mapping[bytes, frozenset[str]], backfills: Sequence[Backfill], partition: int) -> Iterator[Source]:
    """Each fresh leaf once: of the newest backfill that has it for the partition, and at last those of none."""
    left = dict(fresh)
    for backfill in reversed(backfills):
        if partition not in backfill.parts:
            continue
        held = {name.encode(): frozenset(leaves) for name, leaves in backfill.leaves.items()}
        served = {workspace: leaves & held.get(workspace, frozenset()) for workspace, leaves in left.items()}
        served = {workspace: leaves for workspace, leaves in served.items() if leaves}
        if served:
            yield Source(backfill, served)
            left = {workspace: leaves - served.get(workspace, frozenset()) for workspace, leaves in left.items()}
    left = {workspace: leaves for workspace, leaves in left.items() if leaves}
    if left:
        yield Source(None, left)


def states_of(run: str, records: Iterable[tuple[bytes, Stored]]) -> dict[bytes, bytes]:
    """Key -> state of that run. What a task wrote that was done again is there twice: the last counts."""
    return {key: stored.state for key, stored in records if stored.run == run}


def narrowed(state: UserState, leaves: frozenset[str]) -> UserState:
    """The state with what it keeps for those leaves alone. Changes it."""
    state.accumulators.restrict(leaves)
    state.waiting = [match for match in state.waiting if match.leaf in leaves]
    state.due.restrict(leaves)
    return state


def joined(pasts: Iterable[dict[bytes, UserState]]) -> dict[bytes, UserState]:
    """Pasts of different leaves as one. Changes them."""
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
