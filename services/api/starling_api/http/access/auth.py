"""Pure core: tokens and roles. Tokens are stored as hashes and never appear in logs or records."""

import hashlib
import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from starling_common.values import Workspace


class Role(IntEnum):
    """The roles in ascending order. Each includes the permissions of the ones before it."""

    VIEWER = 1
    MARKETER = 2
    ADMIN = 3


@dataclass(frozen=True, slots=True)
class Caller:
    """The authenticated caller of a request. `name` is the role and the first eight hex digits of the token's hash."""

    workspace: Workspace
    role: Role
    name: str


_ENTRY: Final = re.compile(r"(?P<token>[^\s=,]+)=(?P<role>[a-z]+):(?P<workspace>[a-z][a-z0-9_-]{0,63})")


class Tokens:
    """All tokens of an installation."""

    def __init__(self, text: str) -> None:
        """`text` is `token=role:workspace`, comma separated. Raises: ValueError with the entry's position, without the token."""
        self._callers: dict[bytes, Caller] = {}
        for number, entry in enumerate(filter(None, (part.strip() for part in text.split(","))), 1):
            found = _ENTRY.fullmatch(entry)
            role = Role.__members__.get(found["role"].upper()) if found else None
            if found is None or role is None:
                raise ValueError(f"token {number}: expected token=role:workspace with role viewer, marketer or admin")
            digest = _digest(found["token"])
            self._callers[digest] = Caller(Workspace(found["workspace"]), role, f"{role.name.lower()}-{digest.hex()[:8]}")

    def __len__(self) -> int:
        """Return the number of tokens."""
        return len(self._callers)

    def caller(self, token: str) -> Caller | None:
        """Return the caller of a token; None for an unknown token. The look-up by hash prevents timing attacks."""
        return self._callers.get(_digest(token))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
