"""Core: create, rotate and revoke the credentials of one kind.

A secret exists in the response that creates it, and nowhere else: its record has the SHA-256.
"""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Protocol

from starling_api.credentials.bodies import CredentialKind
from starling_api.definitions.definition import Author
from starling_api.http.errors import CredentialEnded, NotFound, ResourceBusy
from starling_api.http.pagination import PageOf, cut
from starling_common.records.credentials import (
    Credential,
    Credentials,
    Secret,
    digest_of,
    revocation_key,
    revocation_record,
    secret_key,
    secret_record,
)
from starling_common.time.instants import format_instant

MAX_CREDENTIALS: Final = 1_000
"""Maximum tokens, and maximum write keys, of one workspace except revoked ones."""

_PREFIX_CHARACTERS: Final = 8
_SECRET_BYTES: Final = 30


class CredentialStore(Protocol):
    """The topic of one kind of credential, and what this process knows of it."""

    def refresh(self) -> Credentials:
        """Return the credentials with every record written before. Raises: BrokerUnavailable."""

    def publish(self, key: bytes, record: Mapping[str, Any] | None, author: Author) -> None:
        """Write a record, or a tombstone. Return once the broker has it. Raises: BrokerUnavailable, RegistryUnavailable."""


class Issued(NamedTuple):
    """A credential with its new secret. `secret` None: the request was a dry run."""

    credential: Credential
    secret: str | None


@dataclass(frozen=True, slots=True)
class CredentialCommands:
    """The operations on the credentials of one kind. Each may raise the `…Unavailable` error of a store."""

    kind: CredentialKind
    store: CredentialStore
    now_micros: Callable[[], int]

    def create(self, author: Author, body: object, *, dry_run: bool) -> Issued:
        """Create a credential. Raises: DefinitionRefused, ResourceBusy at the maximum of a workspace."""
        now_ms = self._now_ms()
        wanted = self.kind.read(body, now_ms)
        active = [one for one in self.store.refresh().of_workspace(author.workspace) if one.revoked_at_ms is None]
        if len(active) >= MAX_CREDENTIALS:
            raise ResourceBusy(f"the workspace has {MAX_CREDENTIALS} {self.kind.title}s: revoke some of them first")
        text, secret = self._new_secret(now_ms, wanted.expires_at_ms)
        credential = Credential(
            author.workspace,
            self.kind.mark + secrets.token_hex(8),
            wanted.name,
            wanted.role,
            wanted.scopes,
            now_ms,
            author.name,
            (secret,),
        )
        if dry_run:
            return Issued(credential, None)
        self._publish(credential, secret, author)
        return Issued(self._after(credential), text)

    def rotate(self, author: Author, identifier: str, overlap_ms: int, *, dry_run: bool) -> Issued:
        """Give a credential a new secret. The others stay valid until the end of the overlap, or their earlier expiry.

        The new secret expires when the newest one would have. Raises: NotFound, CredentialEnded.
        """
        now_ms = self._now_ms()
        credential = self._found(self.store.refresh(), author, identifier)
        if credential.revoked_at_ms is not None:
            raise CredentialEnded("revoked", f"{identifier!r} is revoked: create another {self.kind.title}")
        newest = credential.secrets[-1]
        if not newest.is_valid(now_ms):
            raise CredentialEnded("expired", f"{identifier!r} has expired: create another {self.kind.title}")
        text, secret = self._new_secret(max(now_ms, newest.issued_at_ms + 1), newest.expires_at_ms)
        end_ms = now_ms + overlap_ms
        older = [
            replace(one, expires_at_ms=end_ms if one.expires_at_ms is None else min(end_ms, one.expires_at_ms))
            for one in credential.secrets
        ]
        rotated = replace(credential, secrets=(*older, secret))
        if dry_run:
            return Issued(rotated, None)
        # The new secret is written first: an interrupted rotation can be repeated, and leaves a credential that works.
        self._publish(credential, secret, author)
        for before, one in zip(credential.secrets, older, strict=True):
            if not before.is_valid(now_ms):
                self.store.publish(secret_key(credential, one), None, author)
            elif one != before:
                self._publish(credential, one, author)
        return Issued(self._after(rotated), text)

    def revoke(self, author: Author, identifier: str, *, dry_run: bool) -> None:
        """Revoke a credential permanently. A repetition has no effect. Raises: NotFound."""
        credential = self._found(self.store.refresh(), author, identifier)
        if dry_run or credential.revoked_at_ms is not None:
            return
        changed = (self.now_micros(), author.correlation_id)
        record = revocation_record(credential, self._now_ms(), changed)
        self.store.publish(revocation_key(credential), record, author)
        self._after(credential)

    def one(self, workspace: str, identifier: str) -> dict[str, Any]:
        """Return a credential as responses show it. Raises: NotFound."""
        found = self.store.refresh().get(workspace, identifier)
        if found is None:
            raise NotFound(self.kind.title, identifier)
        return self.shown(found)

    def all(self, workspace: str, page: PageOf) -> dict[str, Any]:
        """Return a page of credentials, revoked ones included, the oldest first. Raises: BadRequest (`bad_cursor`)."""
        name = self.kind.topic
        after = page.after(name, (0, ""))
        found = [one for one in self.store.refresh().of_workspace(workspace) if (one.created_at_ms, one.id) > after]
        items, cursor = cut(found[: page.limit + 1], page.limit, name, lambda one: (one.created_at_ms, one.id))
        as_of = format_instant(self._now_ms())
        return {"items": [self.shown(one) for one in items], "next_cursor": cursor, "as_of": as_of}

    def shown(self, credential: Credential) -> dict[str, Any]:
        """Return the JSON of a credential, without a secret. `expires_at`, `prefix` and `last4` are those of the newest secret."""
        newest, now_ms = credential.secrets[-1], self._now_ms()
        overlapping = [one.expires_at_ms for one in credential.secrets[:-1] if one.expires_at_ms and one.is_valid(now_ms)]
        access = {"scopes": list(credential.scopes)} if credential.role is None else {"role": credential.role}
        return {
            "id": credential.id,
            "name": credential.name,
            **access,
            "prefix": newest.prefix,
            "last4": newest.last4,
            "created_at": format_instant(credential.created_at_ms),
            "created_by": credential.created_by,
            "expires_at": _instant(newest.expires_at_ms),
            "previous_secret_expires_at": _instant(max(overlapping, default=None)),
            "revoked": credential.revoked_at_ms is not None,
            "revoked_at": _instant(credential.revoked_at_ms),
        }

    def _found(self, known: Credentials, author: Author, identifier: str) -> Credential:
        found = known.get(author.workspace, identifier)
        if found is None or not found.secrets:
            raise NotFound(self.kind.title, identifier)
        return found

    def _after(self, credential: Credential) -> Credential:
        """Return the credential as it is after this process has read its own records."""
        return self.store.refresh().get(credential.workspace, credential.id) or credential

    def _publish(self, credential: Credential, secret: Secret, author: Author) -> None:
        record = secret_record(credential, secret, (self.now_micros(), author.correlation_id))
        self.store.publish(secret_key(credential, secret), record, author)

    def _new_secret(self, now_ms: int, expires_at_ms: int | None) -> tuple[str, Secret]:
        text = self.kind.secret_mark + secrets.token_urlsafe(_SECRET_BYTES)
        return text, Secret(digest_of(text), text[:_PREFIX_CHARACTERS], text[-4:], now_ms, expires_at_ms)

    def _now_ms(self) -> int:
        return self.now_micros() // 1000


def _instant(ms: int | None) -> str | None:
    return None if ms is None else format_instant(ms)
