"""Pure core: tokens and roles. Tokens are stored as hashes and never appear in logs or records."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from starling_common.records.credentials import Credentials, digest_of
from starling_common.time.instants import wall_clock_ms
from starling_common.values import Workspace


class Role(Enum):
    """The roles. An editor does not approve, and an approver does not edit: both read, and an admin does everything.

    No operation needs an approver yet.
    """

    VIEWER = "viewer"
    EDITOR = "editor"
    APPROVER = "approver"
    ADMIN = "admin"
    MARKETER = "editor"  # noqa: PIE796 - another name of the same role

    def includes(self, other: "Role") -> bool:
        """Return whether this role has the permissions of the other one."""
        return self is other or self is Role.ADMIN or other is Role.VIEWER


ROLES: Final = {name.lower(): role for name, role in Role.__members__.items()}
"""The roles by the names that settings and bodies may use."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The authenticated caller of a request. `name` identifies the token without containing it.

    It is the id of a token, or, of a token of the settings, its role and the first eight hex digits of its hash. `title` is the
    name that an admin gave the token.
    """

    workspace: Workspace
    role: Role
    name: str
    title: str = ""


class CreatedTokens(Protocol):
    """The tokens that the API created. Neither method blocks."""

    def value(self) -> Credentials:
        """Return the last known tokens."""

    def is_read(self) -> bool:
        """Return whether they have been read since the start of the process."""


class _None:
    def value(self) -> Credentials:
        return Credentials()

    def is_read(self) -> bool:
        return True


_ENTRY: Final = re.compile(r"(?P<token>[^\s=,]+)=(?P<role>[a-z]+):(?P<workspace>[a-z][a-z0-9_-]{0,63})")


class Tokens:
    """All tokens of an installation: those of the settings, and those that the API created."""

    def __init__(self, text: str, created: CreatedTokens | None = None, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        """`text` is `token=role:workspace`, comma separated. Raises: ValueError with the entry's position, without the token."""
        self._created = created or _None()
        self._now_ms = now_ms
        self._callers: dict[bytes, Caller] = {}
        for number, entry in enumerate(filter(None, (part.strip() for part in text.split(","))), 1):
            found = _ENTRY.fullmatch(entry)
            role = ROLES.get(found["role"]) if found else None
            if found is None or role is None:
                raise ValueError(f"token {number}: expected token=role:workspace with a role of {', '.join(ROLES)}")
            digest = digest_of(found["token"])
            self._callers[digest] = Caller(Workspace(found["workspace"]), role, f"{found['role']}-{digest.hex()[:8]}")

    def __len__(self) -> int:
        """Return the number of tokens of the settings."""
        return len(self._callers)

    def is_complete(self) -> bool:
        """Return whether the created tokens are known; before that an unknown token may be valid."""
        return self._created.is_read()

    def caller(self, token: str) -> Caller | None:
        """Return the caller of a token; None for an unknown, expired or revoked one.

        Tokens are looked up by hash, which prevents timing attacks.
        """
        found = self._callers.get(digest_of(token))
        if found is not None:
            return found
        match = self._created.value().match(token)
        if match is None or not match.secret.is_valid(self._now_ms()):
            return None
        credential = match.credential
        role = ROLES.get(credential.role or "")
        return None if role is None else Caller(Workspace(credential.workspace), role, credential.id, credential.name)
