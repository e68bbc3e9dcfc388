"""Adapter: definitions, claims and stored responses in Cassandra. Every method may raise DatabaseUnavailable."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from starling_api.definitions.definition import Change, Definition
from starling_api.ports import Claim, InForce, Stored
from starling_common.cassandra.database import Database, Row

_DEFINITION: Final = "SELECT * FROM {ks}.definitions WHERE workspace = ? AND kind = ? AND key = ?"
_DEFINITIONS: Final = "SELECT * FROM {ks}.definitions WHERE workspace = ? AND kind = ? AND key > ?"

_EVERYWHERE: Final = "SELECT workspace, kind, key, version, status FROM {ks}.definitions"

_NEWEST: Final = "SELECT * FROM {ks}.definition_claims WHERE workspace = ? AND kind = ? AND key = ?"
_FIRST_CLAIM: Final = (
    "INSERT INTO {ks}.definition_claims (workspace, kind, key, event_id, version, action, document, actor, correlation_id, "
    "created_at_micros, recorded_at_micros, published) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, false) IF NOT EXISTS"
)
_LATER_CLAIM: Final = (
    "UPDATE {ks}.definition_claims SET event_id = ?, version = ?, action = ?, document = ?, actor = ?, correlation_id = ?, "
    "created_at_micros = ?, recorded_at_micros = ?, published = false WHERE workspace = ? AND kind = ? AND key = ? IF event_id = ?"
)
_PUBLISHED: Final = (
    "UPDATE {ks}.definition_claims SET published = true WHERE workspace = ? AND kind = ? AND key = ? IF event_id = ?"
)
_WITHDRAW_FIRST: Final = (
    "DELETE FROM {ks}.definition_claims WHERE workspace = ? AND kind = ? AND key = ? IF event_id = ? AND published = false"
)
_WITHDRAW_LATER: Final = _LATER_CLAIM.replace("published = false", "published = true") + " AND published = false"
_UNPUBLISHED: Final = "SELECT * FROM {ks}.definition_claims WHERE published = false ALLOW FILTERING"

_RESERVE: Final = (
    "INSERT INTO {ks}.idempotency (workspace, idempotency_key, fingerprint, status, body) VALUES (?, ?, ?, 0, '') "
    "IF NOT EXISTS USING TTL 60"
)
_FIRST_ANSWER: Final = "SELECT * FROM {ks}.idempotency WHERE workspace = ? AND idempotency_key = ?"
_KEEP: Final = (
    "UPDATE {ks}.idempotency USING TTL 86400 SET fingerprint = ?, status = ?, body = ?, etag = ? "
    "WHERE workspace = ? AND idempotency_key = ? IF EXISTS"
)
_RELEASE: Final = "DELETE FROM {ks}.idempotency WHERE workspace = ? AND idempotency_key = ? IF EXISTS"


class CassandraDefinitions:
    """The read model of definitions."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def definition(self, workspace: str, kind: str, key: str) -> Definition | None:
        """Return the newest state that the projector has written; None for an unknown key."""
        rows = self._database.read(_DEFINITION, (workspace, kind, key))
        return _definition(rows[0]) if rows else None

    def definitions(self, workspace: str, kind: str, after: str = "", most: int | None = None) -> Sequence[Definition]:
        """Return the definitions sorted by key, archived ones included."""
        rows = self._database.read(_DEFINITIONS, (workspace, kind, after))
        return [found for row in rows if (found := _definition(row)) is not None][:most]

    def everywhere(self, kind: str) -> Sequence[InForce]:
        """Return the definitions of all workspaces. Scans the table without the documents."""
        rows = self._database.read(_EVERYWHERE)
        return [
            InForce(row["workspace"], row["key"], row["version"], row["status"])
            for row in rows
            if row["kind"] == kind and row["version"] is not None
        ]


class CassandraClaims:
    """The newest change of each key, updated by lightweight transactions."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def newest(self, workspace: str, kind: str, key: str) -> Claim | None:
        """Return the newest claim by a serial read, which sees every completed claim."""
        rows = self._database.read_serially(_NEWEST, (workspace, kind, key))
        return Claim(_change(rows[0]), bool(rows[0]["published"])) if rows else None

    def claim(self, change: Change, after: Change | None) -> bool:
        """Return False if another request claimed first."""
        identity, values = _identity(change), _values(change)
        if after is None:
            return self._database.write_if(_FIRST_CLAIM, (*identity, *values))
        return self._database.write_if(_LATER_CLAIM, (*values, *identity, after.event_id))

    def withdraw(self, change: Change, before: Change | None) -> None:
        """Has no effect if a later change is claimed."""
        if before is None:
            self._database.write_if(_WITHDRAW_FIRST, (*_identity(change), change.event_id))
        else:
            self._database.write_if(_WITHDRAW_LATER, (*_values(before), *_identity(change), change.event_id))

    def mark_published(self, change: Change) -> None:
        """Has no effect if a later change is claimed."""
        self._database.write_if(_PUBLISHED, (change.workspace, change.kind, change.key, change.event_id))

    def unpublished(self) -> Sequence[Change]:
        """Return the unpublished claims. Scans the table, which has one small row per definition."""
        return [_change(row) for row in self._database.read(_UNPUBLISHED)]


class CassandraResponses:
    """Stored responses by idempotency key. A reservation expires after a minute."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def reserve(self, workspace: str, idempotency_key: str, fingerprint: str) -> tuple[str, Stored] | None:
        """Return None if the key was free and is now reserved, else the first request's fingerprint and response."""
        while not self._database.write_if(_RESERVE, (workspace, idempotency_key, fingerprint)):
            rows = self._database.read_serially(_FIRST_ANSWER, (workspace, idempotency_key))
            if rows and rows[0]["fingerprint"] is not None:
                row = rows[0]
                return row["fingerprint"], Stored(row["status"] or 0, row["body"] or "", row["etag"])
        return None

    def store(self, workspace: str, idempotency_key: str, fingerprint: str, answer: Stored) -> None:
        """Store the response for a day."""
        values = (fingerprint, answer.status, answer.body, answer.etag, workspace, idempotency_key)
        self._database.write_if(_KEEP, values)

    def release(self, workspace: str, idempotency_key: str) -> None:
        """Delete the reservation."""
        self._database.write_if(_RELEASE, (workspace, idempotency_key))


def _identity(change: Change) -> tuple[Any, ...]:
    return change.workspace, change.kind, change.key


def _values(change: Change) -> tuple[Any, ...]:
    return (
        change.event_id,
        change.version,
        change.action,
        to_json(change.document),
        change.actor,
        change.correlation_id,
        change.created_at_micros,
        change.recorded_at_micros,
    )


def to_json(document: Any) -> str:
    """Return compact JSON with the document's own order of fields."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def stored_document(text: str) -> dict[str, Any] | None:
    """Return the JSON object in `text`; None for invalid text, which only a foreign producer can write."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return None


def _belongs(document: Mapping[str, Any], key: str) -> bool:
    """Return whether the document belongs to the key and its labels can be searched. A foreign producer can write others."""
    labels = isinstance(document.get("name", ""), str) and isinstance(document.get("tags"), list | None)
    return labels and document.get("key") == key


def _definition(row: Row) -> Definition | None:
    # The cells have separate timestamps: after a crash of the projector a row may have only its creation time.
    document = None if row["document"] is None else stored_document(row["document"])
    if document is None or not _belongs(document, row["key"]):
        return None
    recorded_at = row["recorded_at_micros"]
    created_at = row["created_at_micros"] or recorded_at
    return Definition(row["kind"], row["key"], row["version"], row["status"], document, created_at, recorded_at)


def _change(row: Row) -> Change:
    return Change(
        workspace=row["workspace"],
        kind=row["kind"],
        key=row["key"],
        version=row["version"],
        action=row["action"],
        document=msgspec.json.decode(row["document"]),
        actor=row["actor"],
        correlation_id=row["correlation_id"],
        created_at_micros=row["created_at_micros"],
        recorded_at_micros=row["recorded_at_micros"],
    )
