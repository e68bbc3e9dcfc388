"""Core: the write keys of the edge: those of the settings, and those that the API created.

A request touches memory only: another thread follows the topic of the created keys.
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec

from starling_common.records.credentials import SCOPES, Credentials
from starling_common.time.instants import wall_clock_ms

_EVERY_SCOPE: Final = frozenset(SCOPES)


class Grant(msgspec.Struct, frozen=True):
    """What a write key may do. `identifier`: the id of a created key, or a key of the settings. `expires_at_ms` None: never."""

    identifier: str
    workspace: str
    scopes: frozenset[str]
    expires_at_ms: int | None = None


class CreatedKeys(Protocol):
    """The keys that the API created. Neither method blocks."""

    def value(self) -> Credentials:
        """Return the last known keys."""

    def is_read(self) -> bool:
        """Return whether they have been read since the start of the process."""


class WriteKeys:
    """All write keys. Used from one event loop only."""

    def __init__(self, listed: Mapping[str, str], created: CreatedKeys, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        """`listed`: the keys of the settings, each with its workspace."""
        self.listed = listed
        self._created = created
        self._now_ms = now_ms
        self._version: object = None
        self._grants: dict[str, Grant] = {}

    def is_complete(self) -> bool:
        """Return whether the created keys are known; before that an unknown key may be valid."""
        return self._created.is_read()

    def grant(self, key: str) -> Grant | None:
        """Return what a key may do; None for an unknown, expired or revoked one."""
        created = self._created.value()
        # The version is read before the keys: a change in between has another version, at which the grants are dropped.
        if created.version is not self._version:
            self._version = created.version
            self._grants = {one: Grant(one, workspace, _EVERY_SCOPE) for one, workspace in self.listed.items()}
        found = self._grants.get(key)
        if found is None:
            found = self._look_up(created, key)
            if found is None:
                return None
            self._grants[key] = found
        return found if found.expires_at_ms is None or self._now_ms() < found.expires_at_ms else None

    def _look_up(self, created: Credentials, key: str) -> Grant | None:
        """Return the grant of a created key. Only a known key is kept, so that unknown ones fill no memory."""
        match = created.match(key)
        if match is None:
            return None
        credential = match.credential
        return Grant(credential.id, credential.workspace, frozenset(credential.scopes), match.secret.expires_at_ms)
