"""Pure core: the values that services exchange, with their shape, unit and origin."""

import hashlib
import uuid
from collections.abc import Iterable
from typing import Final, NewType

Workspace = NewType("Workspace", str)
"""The workspace of one customer; matches `^[a-z][a-z0-9_-]{0,63}$`, so it never contains the key's separator."""

ProfileId = NewType("ProfileId", str)
"""The user id as sent, or the anonymous id while no user id is known."""

EpochMs = NewType("EpochMs", int)
"""Milliseconds since 1970-01-01T00:00:00Z. Never seconds, never local time."""

EpochMicros = NewType("EpochMicros", int)
"""Microseconds since 1970-01-01T00:00:00Z; the unit of `received_at`."""

MAX_ID_BYTES: Final = 512
"""Most bytes of UTF-8 of any id chosen by a sender (contract, part 7). It bounds profiles, keys and rows."""

_NAMESPACE: Final = uuid.UUID("6f1c2a34-5d0b-5c57-9d0c-0b8f6a8f7a11")
_BEGUN: Final = hashlib.sha1(_NAMESPACE.bytes, usedforsecurity=False)
"""Hash of the namespace of every deterministic id. It must never change, or duplicates would get different ids."""

_VARIANT: Final = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
"""The variant digit of a UUID (RFC 9562), by the digit of the hash: its upper two bits are 10."""


def record_key(workspace: str, identifier: str) -> bytes:
    """Return the key of a record: `workspace/id` in UTF-8 (contract, part 4)."""
    return f"{workspace}/{identifier}".encode()


def split_key(key: bytes) -> tuple[Workspace, ProfileId]:
    """Return the workspace and the id of a key.

    Raises: ValueError if the key contains no `/` or is not UTF-8.
    """
    workspace, separator, identifier = key.decode().partition("/")
    if not separator:
        raise ValueError(f"key {key!r} is not workspace/id")
    return Workspace(workspace), ProfileId(identifier)


def is_longer(text: str, limit_bytes: int) -> bool:
    """Return whether the text has more than `limit_bytes` bytes of UTF-8."""
    # A character has at most four bytes, so a short id needs no encoding.
    return len(text) * 4 > limit_bytes and len(text.encode()) > limit_bytes


def workspace_of(key: bytes) -> bytes:
    """Return the workspace of a record's key."""
    return key.partition(b"/")[0]


def deterministic_id(*parts: object) -> str:
    """Return the UUIDv5 of the parts, in order; stable across processes and versions."""
    # Equal to `str(uuid.uuid5(...))`, in a third of its time.
    name = "\x1f".join(map(str, parts))
    begun = _BEGUN.copy()
    begun.update(name.encode())
    digest = begun.hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-5{digest[13:16]}-{_VARIANT[digest[16]]}{digest[17:20]}-{digest[20:32]}"


_SET_BYTES: Final = 16


def plan_name(in_force: Iterable[tuple[str, int, bool]], leaves: int) -> bytes:
    """Return the name of the plan for the segments in force: (`workspace/key`, version, paused) of each, in any order.

    `leaves` is the version of the leaf nodes' compilation: another version is another plan. Version 1 has no suffix.
    """
    lines = sorted(f"{place}@{version}{' paused' * paused}" for place, version, paused in in_force)
    digest = hashlib.blake2b("\n".join(lines).encode(), digest_size=_SET_BYTES).digest()
    return digest if leaves == 1 else digest + leaves.to_bytes(2, "big")


def parts_of(name: bytes) -> tuple[bytes, bytes]:
    """Return the two parts of a plan's name: the digest of the set, and the suffix of the leaf nodes' version."""
    return name[:_SET_BYTES], name[_SET_BYTES:]
