"""Pure core: API tokens and write keys as records: what to write, the fold of their topics, and the look-up of a secret.

The topics are compacted. Each secret has a record of its own and so has the revocation, so that concurrent writers never undo each
other's changes, and a revocation is final.
"""

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from starling_common.outcome import Done, Outcome, Refused
from starling_common.wire import Record

SCOPES: Final = ("track", "identify", "page", "screen", "group", "alias", "batch", "import")
"""The scopes of a write key: each permits one endpoint of ingest."""

_START_BYTES: Final = 8
"""The first bytes of a digest, by which it is looked up. The rest is compared in constant time."""


@dataclass(frozen=True, slots=True)
class Secret:
    """One secret of a credential, without the secret itself. `digest`: its SHA-256; `expires_at_ms` None: never."""

    digest: bytes
    prefix: str
    last4: str
    issued_at_ms: int
    expires_at_ms: int | None

    def is_valid(self, now_ms: int) -> bool:
        """Return whether the secret has not expired."""
        return self.expires_at_ms is None or now_ms < self.expires_at_ms


@dataclass(frozen=True, slots=True)
class Credential:
    """A token (`role`) or a write key (`scopes`) with its secrets, the newest last."""

    workspace: str
    id: str
    name: str
    role: str | None
    scopes: tuple[str, ...]
    created_at_ms: int
    created_by: str
    secrets: tuple[Secret, ...]
    revoked_at_ms: int | None = None


class Match(NamedTuple):
    """The credential of a secret, and the secret's entry."""

    credential: Credential
    secret: Secret


class Credentials:
    """The credentials of one topic. One thread folds records into it in place; any thread may read."""

    def __init__(self) -> None:
        self.version: object = object()
        """Another object after each change. A reader that caches compares it by identity."""
        self._by_id: dict[tuple[str, str], Credential] = {}
        self._by_start: dict[bytes, tuple[tuple[bytes, tuple[str, str]], ...]] = {}
        self._revoked: dict[tuple[str, str], int] = {}

    def get(self, workspace: str, identifier: str) -> Credential | None:
        """Return a credential, also a revoked one; None for an unknown id."""
        return self._by_id.get((workspace, identifier))

    def of_workspace(self, workspace: str) -> list[Credential]:
        """Return the credentials of a workspace, revoked ones included, the oldest first."""
        found = [one for one in list(self._by_id.values()) if one.workspace == workspace]
        return sorted(found, key=lambda one: (one.created_at_ms, one.id))

    def match(self, secret: str) -> Match | None:
        """Return the credential of a secret, also after its expiry; None for an unknown secret or a revoked credential."""
        digest = digest_of(secret)
        for known, place in self._by_start.get(digest[:_START_BYTES], ()):
            if hmac.compare_digest(known, digest):
                credential = self._by_id.get(place)
                if credential is None or credential.revoked_at_ms is not None:
                    return None
                return next((Match(credential, one) for one in credential.secrets if one.digest == digest), None)
        return None

    def _put(self, credential: Credential) -> None:
        place = (credential.workspace, credential.id)
        self._by_id[place] = replace(credential, revoked_at_ms=self._revoked.get(place))
        self.version = object()

    def _add(self, new: Credential) -> None:
        """Add the only secret of `new` to the credential with that id, or replace it there."""
        (secret,) = new.secrets
        place = (new.workspace, new.id)
        before = self._by_id.get(place)
        others = () if before is None else tuple(one for one in before.secrets if one.digest != secret.digest)
        secrets = sorted((*others, secret), key=lambda one: (one.issued_at_ms, one.digest))
        start = secret.digest[:_START_BYTES]
        entry = (secret.digest, place)
        if entry not in self._by_start.get(start, ()):
            self._by_start[start] = (*self._by_start.get(start, ()), entry)
        self._put(replace(new, secrets=tuple(secrets)))

    def _revoke(self, place: tuple[str, str], at_ms: int) -> None:
        # Compaction can remove the records of secrets from before the revocation, or leave them after it.
        self._revoked[place] = min(at_ms, self._revoked.get(place, at_ms))
        if (found := self._by_id.get(place)) is not None:
            self._put(found)

    def _forget(self, place: tuple[str, str], start: str) -> None:
        found = self._by_id.get(place)
        if found is None:
            return
        gone = [one for one in found.secrets if _number(one.digest) == start]
        for one in gone:
            kept = tuple(entry for entry in self._by_start.get(one.digest[:_START_BYTES], ()) if entry[0] != one.digest)
            self._by_start[one.digest[:_START_BYTES]] = kept
        self._put(replace(found, secrets=tuple(one for one in found.secrets if one not in gone)))


def fold_credentials(state: Credentials, key: bytes, record: Record | None) -> Outcome[Credentials]:
    """Fold one `CredentialChanged` into the state, in place; `None` is the tombstone of an expired secret."""
    workspace, identifier, start = _parts(key)
    place = (workspace, identifier)
    if record is None:
        if not start:
            return Refused("missing_value", f"key {key!r}: a revocation has no tombstone: leave the credential revoked")
        state._forget(place, start)  # noqa: SLF001 - the fold is the state's only writer
        return Done(state)
    if (record["workspace"], record["id"]) != place:
        return Refused("bad_key", f"key {key!r}: the record is of {record['workspace']}/{record['id']}")
    if record["revoked_at"] is not None:
        state._revoke(place, record["revoked_at"])  # noqa: SLF001
        return Done(state)
    if record["sha256"] is None or len(record["sha256"]) != hashlib.sha256().digest_size:
        return Refused("bad_digest", f"key {key!r}: sha256 is no SHA-256 digest: rotate the credential")
    state._add(_credential_of(record))  # noqa: SLF001
    return Done(state)


def secret_key(credential: Credential, secret: Secret) -> bytes:
    """Return the record key of a secret: `workspace/id/` and the first digits of its digest."""
    return f"{credential.workspace}/{credential.id}/{_number(secret.digest)}".encode()


def revocation_key(credential: Credential) -> bytes:
    """Return the record key of a revocation: `workspace/id`."""
    return f"{credential.workspace}/{credential.id}".encode()


def secret_record(credential: Credential, secret: Secret, changed: tuple[int, str]) -> dict[str, Any]:
    """Return the `CredentialChanged` of a secret. `changed`: wall clock in µs, and the correlation id of the request."""
    return {
        **_common(credential, changed),
        "sha256": secret.digest,
        "prefix": secret.prefix,
        "last4": secret.last4,
        "issued_at": secret.issued_at_ms,
        "expires_at": secret.expires_at_ms,
        "revoked_at": None,
    }


def revocation_record(credential: Credential, at_ms: int, changed: tuple[int, str]) -> dict[str, Any]:
    """Return the `CredentialChanged` of a revocation. `changed`: wall clock in µs, and the correlation id of the request."""
    empty = dict.fromkeys(("sha256", "prefix", "last4", "issued_at", "expires_at"))
    return {**_common(credential, changed), **empty, "revoked_at": at_ms}


def digest_of(secret: str) -> bytes:
    """Return the SHA-256 of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def _common(credential: Credential, changed: tuple[int, str]) -> dict[str, Any]:
    return {
        "recorded_at": changed[0],
        "workspace": credential.workspace,
        "id": credential.id,
        "name": credential.name,
        "role": credential.role,
        "scopes": list(credential.scopes),
        "created_at": credential.created_at_ms,
        "created_by": credential.created_by,
        "correlation_id": changed[1],
    }


def _credential_of(record: Record) -> Credential:
    secret = Secret(record["sha256"], record["prefix"] or "", record["last4"] or "", record["issued_at"] or 0, record["expires_at"])
    scopes: Sequence[str] = record["scopes"]
    return Credential(
        record["workspace"],
        record["id"],
        record["name"],
        record["role"],
        tuple(scopes),
        record["created_at"],
        record["created_by"],
        (secret,),
    )


def _number(digest: bytes) -> str:
    return digest.hex()[:16]


def _parts(key: bytes) -> tuple[str, str, str]:
    workspace, _, rest = key.decode("utf-8", "replace").partition("/")
    identifier, _, start = rest.partition("/")
    return workspace, identifier, start
