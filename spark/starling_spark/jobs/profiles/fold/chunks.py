"""Pure core: the matches of consecutive records of one partition, as they travel to the fold of their buckets."""

from collections.abc import Callable
from typing import Any

import msgspec

from starling_common.values import split_key

Hit = tuple[int, int, list[tuple[int, Any]]]
"""A matching event: its time, the stream time of its arrival, and the payload for each leaf."""


class UserHits(msgspec.Struct, array_like=True, gc=False):
    """One user's events, in the order of arrival, with the correlation id of the last one."""

    correlation_id: str
    hits: list[Hit]


class Refusal(msgspec.Struct, array_like=True):
    """An encoded dead letter, and its code."""

    key: bytes | None
    value: bytes
    timestamp_ms: int
    correlation_id: str
    code: str = ""


class LostHit(msgspec.Struct, array_like=True):
    """An event that made the fold of a history raise, and why. It changes nothing."""

    user: str
    time_ms: int
    correlation_id: str
    code: str
    message: str


class Seeds(msgspec.Struct, array_like=True):
    """Histories that were folded apart. `states`: by `workspace/user`, of the leaves that a step adds; `lost`: what they lack;
    `now_ms`: the stream time that they have reached.
    """

    states: dict[str, bytes] = msgspec.field(default_factory=dict)
    lost: list[LostHit] = msgspec.field(default_factory=list)
    now_ms: int = 0


class Chunk(msgspec.Struct, array_like=True):
    """The matches of consecutive records of one partition. `users`: by `workspace/user`.

    `moved_by`: correlation id of the record that last advanced stream time. `visits`: 0, or the number of micro-batches in which
    the query visits users whom a step concerns: this is one of them. `seeds`: the histories of users for a step.
    """

    now_ms: int
    moved_by: str
    users: dict[str, UserHits]
    refused: list[Refusal]
    visits: int = 0
    seeds: Seeds = msgspec.field(default_factory=Seeds)


_CHUNK = msgspec.msgpack.Decoder(Chunk)
_SEEDS = msgspec.msgpack.Decoder(Seeds)


def workspace_of(user: str) -> str:
    """Return the workspace of `workspace/user`."""
    return split_key(user.encode())[0]


def decode_chunk(data: bytes) -> Chunk:
    """Return the chunk of bytes."""
    return _CHUNK.decode(data)


def decode_seeds(data: bytes) -> Seeds:
    """Return the seeds of bytes."""
    return _SEEDS.decode(data)


def split(chunk: Chunk, slots: int, slot_of: Callable[[str], int]) -> list[Chunk]:
    """Return the chunks of the slots, each with the stream time of `chunk` and its own users; the first has the dead letters."""
    if slots == 1:
        return [chunk]
    parts = [Chunk(chunk.now_ms, chunk.moved_by, {}, [], chunk.visits) for _ in range(slots)]
    parts[0].refused = chunk.refused
    parts[0].seeds.lost = chunk.seeds.lost
    for name, hits in chunk.users.items():
        parts[slot_of(name)].users[name] = hits
    for name, state in chunk.seeds.states.items():
        parts[slot_of(name)].seeds.states[name] = state
    return parts
