"""Pure core: the values that travel between services; shape, unit and origin, said once."""

import hashlib
import uuid
from collections.abc import Iterable
from typing import Final, NewType

Workspace = NewType("Workspace", str)
"""One customer's space; matches `^[a-z][a-z0-9_-]{0,63}$`, so it never holds the key's separator."""

ProfileId = NewType("ProfileId", str)
"""The user id as sent, or the anonymous id while no user id is known."""

EpochMs = NewType("EpochMs", int)
"""Milliseconds since 1970-01-01T00:00:00Z. Never seconds, never local time."""

EpochMicros = NewType("EpochMicros", int)
"""Microseconds since 1970-01-01T00:00:00Z; the unit of `received_at`."""

DEFAULT_WORKSPACE: Final = Workspace("default")

MAX_ID_BYTES: Final = 512
"""Of UTF-8: the bound of every id that a sender chooses (contract, part 7). Profiles, keys and rows are sized by it."""

_NAMESPACE: Final = uuid.UUID("6f1c2a34-5d0b-5c57-9d0c-0b8f6a8f7a11")
_BEGUN: Final = hashlib.sha1(_NAMESPACE.bytes, usedforsecurity=False)
"""Root of every deterministic id; must never change, or repeats would no longer be recognised."""

_VARIANT: Final = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
"""The digit that says the kind of UUID (RFC 9562): its upper two bits are 10."""


def record_key(workspace: str, identifier: str) -> bytes:
    """The key bytes of every keyed record: `workspace/id` in UTF-8 (contract, part 4)."""
    return f"{workspace}/{identifier}".encode()


def split_key(key: bytes) -> tuple[Workspace, ProfileId]:
    """The inverse of `record_key`.

    Raises: ValueError if the key holds no `/` or is not UTF-8.
    """
    workspace, separator, identifier = key.decode().partition("/")
    if not separator:
        raise ValueError(f"key {key!r} is not workspace/id")
    return Workspace(workspace), ProfileId(identifier)


def is_longer(text: str, limit_bytes: int) -> bool:
    """Return whether the text has more than `limit_bytes` bytes of UTF-8."""
    # A character has at most four bytes, so the usual short id is never encoded.
    return len(text) * 4 > limit_bytes and len(text.encode()) > limit_bytes


def workspace_of(key: bytes) -> bytes:
    """The workspace in a record's key."""
    return key.partition(b"/")[0]


def deterministic_id(*parts: object) -> str:
    """UUIDv5 of the parts, in order; the same parts give the same id in every process and for ever."""
    # As `str(uuid.uuid5(...))`, which takes three times as long.
    name = "\x1f".join(map(str, parts))
    begun = _BEGUN.copy()
    begun.update(name.encode())
    digest = begun.hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-5{digest[13:16]}-{_VARIANT[digest[16]]}{digest[17:20]}-{digest[20:32]}"


_SET_BYTES: Final = 16


def plan_name(in_force: Iterable[tuple[str, int, bool]], leaves: int) -> bytes:
    """Names a set of segments in force: (`workspace/key`, version, whether it is paused) of each, in any order.

    `leaves`: which leaves they are compiled to; another number is another plan for the same set. The first one leaves no mark.
    """
    lines = sorted(f"{place}@{version}{' paused' * paused}" for place, version, paused in in_force)
    digest = hashlib.blake2b("\n".join(lines).encode(), digest_size=_SET_BYTES).digest()
    return digest if leaves == 1 else digest + leaves.to_bytes(2, "big")


def parts_of(name: bytes) -> tuple[bytes, bytes]:
    """What stands for the set in a plan's name, and what for its leaves."""
    return name[:_SET_BYTES], name[_SET_BYTES:]
